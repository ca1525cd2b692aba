-- The containers in which commands of sessions run. A session has at most one that has not ended.
CREATE TABLE container (
  id TEXT NOT NULL PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES session (id),
  name TEXT NOT NULL,
  image TEXT NOT NULL,
  engine TEXT NOT NULL,
  settings_hash TEXT NOT NULL,
  host TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  ended_at INTEGER,
  end_reason TEXT,
  CHECK ((ended_at IS NULL) = (end_reason IS NULL))
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX container_current ON container (session_id) WHERE ended_at IS NULL;

-- The terminal backend of a schedule's sessions; empty for the configured one.
ALTER TABLE schedule ADD COLUMN terminal TEXT NOT NULL DEFAULT '';
