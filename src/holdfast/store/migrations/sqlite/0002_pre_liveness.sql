-- Who has the session open, between turns too; the lease says only who may write now.
ALTER TABLE session ADD COLUMN owner_worker TEXT REFERENCES worker (id);

-- When everything that an ended worker had open was seen to. Until then a sweep comes back to it.
ALTER TABLE worker ADD COLUMN cleared_at INTEGER;

CREATE INDEX worker_uncleared ON worker (id) WHERE ended_at IS NOT NULL AND cleared_at IS NULL;
CREATE INDEX session_owner ON session (owner_worker) WHERE owner_worker IS NOT NULL;
CREATE INDEX session_orphan ON session (id)
WHERE open_turn IS NOT NULL AND lease_worker IS NULL AND ended_at IS NULL AND quarantined IS NULL;
CREATE INDEX session_idle ON session (updated_at) WHERE source = 'api' AND ended_at IS NULL AND open_turn IS NULL;
