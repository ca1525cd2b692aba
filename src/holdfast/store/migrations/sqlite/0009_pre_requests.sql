-- The newest system text of a session is looked up with each request: found without reading the log.
CREATE INDEX event_system ON event (session_id, seq) WHERE kind = 'system_changed';

-- Requests of the last minutes that began a turn, by a digest of their body, so that the retry of a client is recognised.
-- The worker is the one that took the request, or its newest retry, in.
CREATE TABLE recent_request (
  caller TEXT NOT NULL,
  digest TEXT NOT NULL,
  turn_id TEXT NOT NULL,
  session_id TEXT NOT NULL REFERENCES session (id),
  worker_id TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (caller, digest, turn_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX recent_request_at ON recent_request (at);
CREATE INDEX recent_request_session ON recent_request (session_id);
