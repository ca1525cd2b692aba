-- name: get_hash
-- The hash of one event.
SELECT hash FROM event WHERE session_id = :session AND seq = :seq;

-- name: list_hashes
-- Every hash of a log, in order.
SELECT hash FROM event WHERE session_id = :session ORDER BY seq;

-- name: extend
-- Moves the head of a session without a lease to the end of the imported events, if it has not changed.
UPDATE session SET seq = :seq, hash = :hash
WHERE id = :session AND seq = :had AND lease_worker IS NULL
RETURNING id;

-- name: list_by_kind
-- The events of one kind in a log, in order.
SELECT seq, kind, at, hash, body FROM event WHERE session_id = :session AND kind = :kind ORDER BY seq;

-- name: list_kinds_after
-- The kinds of events after a number.
SELECT DISTINCT kind FROM event WHERE session_id = :session AND seq > :seq;

-- name: find_first_message_after
-- The first event after a number with which an import can continue.
SELECT min(seq) FROM event WHERE session_id = :session AND seq > :seq AND kind IN ('turn_started', 'compacted');
