-- name: take
-- Takes a session that nobody holds, for a worker that is alive: what a buried one held would never be freed.
UPDATE session SET lease_worker = :worker, lease_token = lease_token + 1
WHERE id = :session AND lease_worker IS NULL
  AND EXISTS (SELECT 1 FROM worker WHERE worker.id = :worker AND worker.ended_at IS NULL)
RETURNING lease_token;

-- name: holder
-- Who holds the session, and who that is.
SELECT session.lease_worker, session.lease_token, worker.kind, worker.host, worker.pid, worker.beat_at
FROM session LEFT JOIN worker ON worker.id = session.lease_worker
WHERE session.id = :session;

-- name: release
-- Gives the session back, if it is still ours.
UPDATE session SET lease_worker = NULL
WHERE id = :session AND lease_token = :token AND lease_worker = :worker;

-- name: free_all
-- Takes every session from a worker that is gone; its tokens no longer fit, so that it can write nothing.
UPDATE session SET lease_worker = NULL, lease_token = lease_token + 1
WHERE lease_worker = :worker
RETURNING id;
