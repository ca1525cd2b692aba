-- The goals of sessions, as folded from their logs: one row for the newest goal of each session that ever had one.
ALTER TABLE session ADD COLUMN goal TEXT NOT NULL DEFAULT '';

CREATE TABLE goal (
  session_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id),
  state TEXT NOT NULL,
  due INTEGER NOT NULL,
  deadline_at INTEGER NOT NULL,
  worker_id TEXT NOT NULL,
  body TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX goal_open ON goal (deadline_at) WHERE state IN ('active', 'paused');
CREATE INDEX goal_active ON goal (session_id) WHERE state = 'active';
