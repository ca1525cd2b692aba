-- name: find_newest
-- The newest request of a caller with this body, from :since on.
SELECT session_id, turn_id, worker_id FROM recent_request
WHERE caller = :caller AND digest = :digest AND at >= :since
ORDER BY at DESC, turn_id DESC LIMIT 1;

-- name: add
INSERT INTO recent_request (caller, digest, turn_id, session_id, worker_id, at)
VALUES (:caller, :digest, :turn, :session, :worker, :at)
ON CONFLICT (caller, digest, turn_id) DO NOTHING;

-- name: set_worker
-- Records which worker now answers the request.
UPDATE recent_request SET worker_id = :worker WHERE caller = :caller AND digest = :digest AND turn_id = :turn;

-- name: delete_old
-- Deletes requests that are too old to be retried.
DELETE FROM recent_request WHERE at < :before;
