-- name: take
-- Takes a free session for a live worker: a lease of a dead worker would never be released. Returns the session; the last
-- column: whether it has queued input.
UPDATE session SET lease_worker = :worker, lease_token = lease_token + 1
WHERE id = :session AND lease_worker IS NULL
  AND EXISTS (SELECT 1 FROM worker WHERE worker.id = :worker AND worker.ended_at IS NULL)
RETURNING *, CAST(EXISTS (SELECT 1 FROM input WHERE session_id = :session AND body <> '') AS INTEGER);

-- name: get_holder
-- The lease holder of the session and its identity.
SELECT session.lease_worker, session.lease_token, worker.kind, worker.host, worker.pid, worker.beat_at
FROM session LEFT JOIN worker ON worker.id = session.lease_worker
WHERE session.id = :session;

-- name: release
-- Releases the session if the lease is valid.
UPDATE session SET lease_worker = NULL
WHERE id = :session AND lease_token = :token AND lease_worker = :worker;

-- name: release_all
-- Releases every lease of a dead worker and raises the tokens, so it can write nothing.
UPDATE session SET lease_worker = NULL, lease_token = lease_token + 1
WHERE lease_worker = :worker
RETURNING id;
