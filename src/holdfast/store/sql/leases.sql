-- name: take
-- Takes a session that nobody holds; the token grows at each change of hands.
UPDATE session SET lease_worker = :worker, lease_token = lease_token + 1
WHERE id = :session AND lease_worker IS NULL
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
