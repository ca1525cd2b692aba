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

-- name: of_kind
-- The events of one kind in a log, in order.
SELECT seq, kind, at, hash, body FROM event WHERE session_id = :session AND kind = :kind ORDER BY seq;

-- name: kinds_behind
-- Which kinds of events there are behind a place of a log.
SELECT DISTINCT kind FROM event WHERE session_id = :session AND seq > :seq;

-- name: first_woven_behind
-- Where the messages of an import begin behind a place of a log.
SELECT min(seq) FROM event WHERE session_id = :session AND seq > :seq AND kind IN ('turn_started', 'compacted');
