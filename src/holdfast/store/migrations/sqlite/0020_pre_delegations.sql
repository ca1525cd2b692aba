-- Tasks that sessions have delegated to child sessions. `delivery` says how the parent gets the completion: as the result
-- of the `call`, as input that wakes it, or as a note that does not.
CREATE TABLE delegation (
  child_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id),
  parent_id TEXT NOT NULL,
  turn_id TEXT NOT NULL,
  call_id TEXT NOT NULL,
  task_turn TEXT NOT NULL,
  title TEXT NOT NULL,
  delivery TEXT NOT NULL CHECK (delivery IN ('call', 'wake', 'note')),
  started_at INTEGER NOT NULL,
  deadline_at INTEGER NOT NULL,
  stop_reason TEXT NOT NULL DEFAULT '',
  ended_at INTEGER,
  outcome TEXT,
  reason TEXT NOT NULL DEFAULT '',
  reply TEXT NOT NULL DEFAULT '',
  delivered_at INTEGER,
  UNIQUE (parent_id, turn_id, call_id),
  CHECK ((ended_at IS NULL) = (outcome IS NULL)),
  CHECK (delivered_at IS NULL OR ended_at IS NOT NULL)
) STRICT, WITHOUT ROWID;

CREATE INDEX delegation_running ON delegation (deadline_at) WHERE ended_at IS NULL;
CREATE INDEX delegation_stopped ON delegation (child_id) WHERE ended_at IS NULL AND stop_reason <> '';
