-- name: begin
-- Records that the turn is active in the worker's process.
INSERT INTO activity (session_id, worker_id, turn_id, isolated) VALUES (:session, :worker, :turn, :isolated)
ON CONFLICT (session_id, worker_id) DO UPDATE SET turn_id = excluded.turn_id, isolated = excluded.isolated;

-- name: end
-- Records that no turn of the session is active in the worker's process.
DELETE FROM activity WHERE worker_id = :worker AND session_id = :session;

-- name: list_by_worker
-- The turns that are active in a worker's process, or were when it died.
SELECT session_id, turn_id FROM activity WHERE worker_id = :worker ORDER BY session_id;

-- name: find_other_isolated
-- Another session with an active isolated replay in a live worker.
SELECT activity.session_id FROM activity JOIN worker ON worker.id = activity.worker_id
WHERE activity.isolated = 1 AND activity.session_id <> :session AND worker.ended_at IS NULL
LIMIT 1;

-- name: delete_old
-- Deletes the rows of workers that ended before :before.
DELETE FROM activity WHERE worker_id IN (SELECT id FROM worker WHERE ended_at < :before);
