-- Changes that tools made to files, and the content that the files had before, so that a rewind can restore them.
CREATE TABLE file_change (
  session_id TEXT NOT NULL REFERENCES session (id),
  number INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  host TEXT NOT NULL,
  path TEXT NOT NULL,
  before_hash TEXT NOT NULL,
  after_hash TEXT NOT NULL,
  mode INTEGER NOT NULL,
  folder TEXT NOT NULL,
  problem TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (session_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE file_image (
  session_id TEXT NOT NULL REFERENCES session (id),
  hash TEXT NOT NULL,
  size INTEGER NOT NULL,
  number INTEGER NOT NULL,
  content TEXT NOT NULL,
  PRIMARY KEY (session_id, hash)
) STRICT;
