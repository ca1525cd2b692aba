-- name: put
-- Keeps input that has to wait for its turn.
INSERT INTO input (session_id, turn_id, mode, body, at) VALUES (:session, :turn, :mode, :body, :at);

-- name: waiting
-- All input that waits, oldest first.
SELECT turn_id, mode, body, at FROM input WHERE session_id = :session ORDER BY turn_id;

-- name: drop
-- Forgets an input whose words are now in the log.
DELETE FROM input WHERE session_id = :session AND turn_id = :turn;
