-- Turns that are at work in a worker's own process (a tool runs, or a replay prepares its first request). The row of a
-- worker that died stays: it says which turns could have caused that death.
CREATE TABLE activity (
  session_id TEXT NOT NULL REFERENCES session (id),
  worker_id TEXT NOT NULL REFERENCES worker (id),
  turn_id TEXT NOT NULL,
  isolated INTEGER NOT NULL,
  PRIMARY KEY (session_id, worker_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX activity_worker ON activity (worker_id);
