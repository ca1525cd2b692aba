-- name: put
-- Appends input to the queue, in order of arrival regardless of the clock.
INSERT INTO input (session_id, place, turn_id, mode, body, at)
SELECT :session, coalesce(max(place), 0) + 1, :turn, :mode, :body, :at FROM input WHERE session_id = :session;

-- name: list_waiting
-- Queued input, oldest first.
SELECT turn_id, mode, body, at FROM input WHERE session_id = :session ORDER BY place;

-- name: list_sessions
-- The sessions of a worker that have queued input.
SELECT DISTINCT session_id FROM input
WHERE EXISTS (SELECT 1 FROM session WHERE id = input.session_id AND lease_worker = :worker);

-- name: request_stop
-- Stores a request to stop a turn. It has the id of that turn, so it cannot stop another one.
INSERT INTO input (session_id, place, turn_id, mode, body, at)
SELECT :session, coalesce(max(place), 0) + 1, :turn, 'stop', '', :at FROM input WHERE session_id = :session
ON CONFLICT (session_id, turn_id) DO NOTHING;

-- name: delete_stop_requests
-- Deletes stop requests of a turn that has ended.
DELETE FROM input WHERE session_id = :session AND mode = 'stop';

-- name: delete
-- Deletes an input that is now in the log.
DELETE FROM input WHERE session_id = :session AND turn_id = :turn;
