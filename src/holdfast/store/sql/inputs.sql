-- name: put
-- Keeps input that has to wait for its turn, behind all that waits already, whatever the clock says.
INSERT INTO input (session_id, place, turn_id, mode, body, at)
SELECT :session, coalesce(max(place), 0) + 1, :turn, :mode, :body, :at FROM input WHERE session_id = :session;

-- name: waiting
-- All input that waits, oldest first.
SELECT turn_id, mode, body, at FROM input WHERE session_id = :session ORDER BY place;

-- name: drop
-- Forgets an input whose words are now in the log.
DELETE FROM input WHERE session_id = :session AND turn_id = :turn;
