-- What a client had been shown at the end of each turn, as a hash, so that one that sends its history is recognised.
-- A family is a session with its forks; the caller is who may be matched without naming the session.
CREATE TABLE history (
  session_id TEXT NOT NULL REFERENCES session (id),
  seq INTEGER NOT NULL,
  hash TEXT NOT NULL,
  caller TEXT NOT NULL,
  family TEXT NOT NULL,
  PRIMARY KEY (session_id, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX history_hash ON history (hash, caller, family, session_id);

-- A repeated request is recognised before it is known which session it went to.
CREATE INDEX idempotency_caller ON idempotency (caller, key);
