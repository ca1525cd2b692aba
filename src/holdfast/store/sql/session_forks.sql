-- name: copy_events
-- Copies the shared part of the parent's log to a fork, hashes included.
INSERT INTO event (session_id, seq, kind, at, hash, body)
SELECT :id, seq, kind, at, hash, body FROM event
WHERE session_id = :parent AND seq <= :upto
ORDER BY seq;
