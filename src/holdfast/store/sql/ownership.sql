-- name: attach
-- Makes a live worker the owner if the session has none or its owner has ended.
UPDATE session SET owner_worker = :worker
WHERE id = :session AND (
  owner_worker IS NULL OR owner_worker = :worker
  OR EXISTS (SELECT 1 FROM worker WHERE worker.id = session.owner_worker AND worker.ended_at IS NOT NULL)
)
  AND EXISTS (SELECT 1 FROM worker WHERE worker.id = :worker AND worker.ended_at IS NULL)
RETURNING id;

-- name: detach
-- Removes the owner. If another worker holds the lease, it becomes the owner, so the session is never orphaned.
UPDATE session SET owner_worker = nullif(lease_worker, :worker)
WHERE id = :session AND owner_worker = :worker
RETURNING id;

-- name: hand_over
-- Makes another live worker the owner of a session.
UPDATE session SET owner_worker = :to
WHERE id = :session AND owner_worker = :worker
  AND EXISTS (SELECT 1 FROM worker WHERE worker.id = :to AND worker.ended_at IS NULL)
RETURNING id;

-- name: list_owned
-- Sessions that a worker owns, up to the limit.
SELECT id FROM session WHERE owner_worker = :worker ORDER BY id LIMIT :limit;

-- name: list_orphans
-- Sessions with an open turn and no lease, a page at a time.
SELECT id FROM session
WHERE open_turn IS NOT NULL AND lease_worker IS NULL AND ended_at IS NULL AND quarantined IS NULL
  AND trashed_at IS NULL AND id > :after
ORDER BY id LIMIT :limit;

-- name: list_idle
-- Open API sessions without an owner, a lease and a running child that were not used since :before.
SELECT id, updated_at FROM session
WHERE source = 'api' AND ended_at IS NULL AND open_turn IS NULL AND updated_at < :before
  AND owner_worker IS NULL AND lease_worker IS NULL AND quarantined IS NULL AND trashed_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM delegation WHERE delegation.parent_id = session.id AND delegation.ended_at IS NULL)
ORDER BY updated_at LIMIT :limit;

-- name: list_unclaimed_input
-- Sessions with queued input and no worker to take it, a page at a time.
SELECT DISTINCT input.session_id FROM input JOIN session ON session.id = input.session_id
WHERE session.lease_worker IS NULL AND (session.open_turn IS NULL OR session.quarantined IS NOT NULL)
  AND session.trashed_at IS NULL AND input.body <> '' AND input.session_id > :after
ORDER BY input.session_id LIMIT :limit;
