-- name: claim
-- Binds an idempotency key to a turn. No row: the key was used before.
INSERT INTO idempotency (session_id, caller, key, request, turn_id, at)
VALUES (:session, :caller, :key, :request, :turn, :at)
ON CONFLICT (session_id, caller, key) DO NOTHING
RETURNING turn_id;

-- name: find
SELECT request, turn_id, at FROM idempotency
WHERE session_id = :session AND caller = :caller AND key = :key;

-- name: find_by_key
-- The newest request of a caller under a key, whichever session it went to.
SELECT session_id, request, turn_id FROM idempotency
WHERE caller = :caller AND key = :key
ORDER BY at DESC LIMIT 1;

-- name: list_turns
-- The turns that a caller requested in a session with numeric keys, in order.
SELECT turn_id FROM idempotency
WHERE session_id = :session AND caller = :caller
ORDER BY length(key), key;
