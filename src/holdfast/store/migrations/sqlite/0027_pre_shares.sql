-- Read-only links to sessions, as they were at an event. Only the hash of a link's token is stored. A revoked link stays, as
-- the record of who shared what, and until when.
CREATE TABLE share (
  id TEXT NOT NULL PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,
  session_id TEXT NOT NULL REFERENCES session (id),
  upto_seq INTEGER NOT NULL,
  title TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  created_by TEXT NOT NULL,
  expires_at INTEGER NOT NULL,
  revoked_at INTEGER,
  revoked_by TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX share_session ON share (session_id, created_at);
