-- name: hash_at
-- The hash of one event.
SELECT hash FROM event WHERE session_id = :session AND seq = :seq;

-- name: hashes
-- Every hash of a log, in order.
SELECT hash FROM event WHERE session_id = :session ORDER BY seq;

-- name: extend
-- Moves the head of a session that nobody holds to where the imported events end, if it is still where it was seen.
UPDATE session SET seq = :seq, hash = :hash
WHERE id = :session AND seq = :had AND lease_worker IS NULL
RETURNING id;
