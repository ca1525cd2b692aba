-- When a person dismissed a dead letter: it stays in the store, and is no longer listed.
ALTER TABLE inbox ADD COLUMN dismissed_at INTEGER;
ALTER TABLE outbox ADD COLUMN dismissed_at INTEGER;
