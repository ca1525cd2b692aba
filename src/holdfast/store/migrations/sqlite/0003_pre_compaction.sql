-- Finished pieces of a summary that is still being written: whoever goes on with it after a crash reads them here.
CREATE TABLE chunk (
  session_id TEXT NOT NULL REFERENCES session (id),
  request TEXT NOT NULL,
  from_seq INTEGER NOT NULL,
  to_seq INTEGER NOT NULL,
  model TEXT NOT NULL,
  summary TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (session_id, request)
) STRICT, WITHOUT ROWID;
