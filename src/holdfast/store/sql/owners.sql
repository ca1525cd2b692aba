-- name: attach
-- Makes a living worker the one that has the session open, if nobody has or whoever had is gone.
UPDATE session SET owner_worker = :worker
WHERE id = :session AND (
  owner_worker IS NULL OR owner_worker = :worker
  OR EXISTS (SELECT 1 FROM worker WHERE worker.id = session.owner_worker AND worker.ended_at IS NOT NULL)
)
  AND EXISTS (SELECT 1 FROM worker WHERE worker.id = :worker AND worker.ended_at IS NULL)
RETURNING id;

-- name: detach
-- Lets go of a session. If another worker is at work in it, it is that one's from here on: it must be somebody's.
UPDATE session SET owner_worker = nullif(lease_worker, :worker)
WHERE id = :session AND owner_worker = :worker
RETURNING id;

-- name: hand_over
-- Makes another living worker the owner of a session.
UPDATE session SET owner_worker = :to
WHERE id = :session AND owner_worker = :worker
  AND EXISTS (SELECT 1 FROM worker WHERE worker.id = :to AND worker.ended_at IS NULL)
RETURNING id;

-- name: owned
-- Sessions that a worker has open, as many as are asked for.
SELECT id FROM session WHERE owner_worker = :worker ORDER BY id LIMIT :limit;

-- name: orphans
-- Sessions with a turn that nobody works on, a page at a time.
SELECT id FROM session
WHERE open_turn IS NOT NULL AND lease_worker IS NULL AND ended_at IS NULL AND quarantined IS NULL
  AND trashed_at IS NULL AND id > :after
ORDER BY id LIMIT :limit;

-- name: idle
-- Open API sessions that nobody has open, holds, or has used since :before.
SELECT id, updated_at FROM session
WHERE source = 'api' AND ended_at IS NULL AND open_turn IS NULL AND updated_at < :before
  AND owner_worker IS NULL AND lease_worker IS NULL AND quarantined IS NULL AND trashed_at IS NULL
ORDER BY updated_at LIMIT :limit;

-- name: unheard
-- Sessions in which words wait and nobody listens, a page at a time.
SELECT DISTINCT input.session_id FROM input JOIN session ON session.id = input.session_id
WHERE session.lease_worker IS NULL AND session.open_turn IS NULL AND session.quarantined IS NULL
  AND session.trashed_at IS NULL AND input.body <> '' AND input.session_id > :after
ORDER BY input.session_id LIMIT :limit;
