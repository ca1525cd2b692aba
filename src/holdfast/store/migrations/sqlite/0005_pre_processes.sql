-- Background processes: who started them, what was last seen of them, and how they ended.
CREATE TABLE process (
  id TEXT NOT NULL PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES session (id),
  command TEXT NOT NULL,
  workdir TEXT NOT NULL,
  folder TEXT NOT NULL,
  host TEXT NOT NULL,
  boot TEXT NOT NULL,
  pid INTEGER,
  process_started TEXT,
  started_at INTEGER NOT NULL,
  started_mono INTEGER NOT NULL,
  ttl_seconds INTEGER NOT NULL,
  track TEXT NOT NULL,
  stop_reason TEXT,
  expired_at INTEGER,
  ended_at INTEGER,
  exit_code INTEGER,
  end_reason TEXT,
  CHECK ((pid IS NULL) = (process_started IS NULL)),
  CHECK ((ended_at IS NULL) = (end_reason IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX process_session ON process (session_id);
CREATE INDEX process_live ON process (id) WHERE ended_at IS NULL;

-- Resets that are due and held back, each with the reason that was last written down.
CREATE TABLE reset_hold (
  session_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id),
  reason TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- When something was last said in the session, or it was opened: what a reset goes by.
ALTER TABLE session ADD COLUMN active_at INTEGER NOT NULL DEFAULT 0;

UPDATE session SET active_at = coalesce((
  SELECT max(event.at) FROM event
  WHERE event.session_id = session.id
    AND event.kind IN ('session_opened', 'user_said', 'model_said', 'tool_ended', 'reopened', 'forked')
), 0);

CREATE INDEX session_resettable ON session (active_at, id)
WHERE channel IS NOT NULL AND ended_at IS NULL AND trashed_at IS NULL;
