-- Facts that sessions and people have saved for later sessions. A row is never deleted: a correction is another row, and
-- forgetting removes the text of all versions of a fact. A fact of everybody has the owner ''.
CREATE TABLE memory_fact (
  number INTEGER NOT NULL PRIMARY KEY,
  first INTEGER NOT NULL,
  owner TEXT NOT NULL,
  scope TEXT NOT NULL CHECK (scope IN ('user', 'project', 'global')),
  project TEXT NOT NULL,
  text TEXT NOT NULL,
  author TEXT NOT NULL,
  session_id TEXT NOT NULL,
  turn_id TEXT NOT NULL,
  call_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  sources TEXT NOT NULL,
  at INTEGER NOT NULL,
  replaced_by INTEGER,
  forgotten_at INTEGER,
  forgotten_by TEXT NOT NULL DEFAULT '',
  CHECK ((scope = 'global') = (owner = '')),
  CHECK ((scope = 'project') = (project <> '')),
  CHECK (forgotten_at IS NULL OR text = '')
) STRICT;

CREATE INDEX memory_fact_current ON memory_fact (owner, number) WHERE replaced_by IS NULL AND forgotten_at IS NULL;
CREATE INDEX memory_fact_first ON memory_fact (first);
CREATE UNIQUE INDEX memory_fact_call ON memory_fact (session_id, turn_id, call_id) WHERE call_id <> '';
