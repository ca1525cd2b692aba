-- name: lock_held
-- Locks the row until the end of the transaction. SQLite has only one writer at a time.
SELECT * FROM session
WHERE id = :session AND lease_token = :token AND lease_worker = :worker
FOR NO KEY UPDATE;

-- name: lock_held_at_turn_end
SELECT session.*,
  CAST(EXISTS (SELECT 1 FROM draft WHERE session_id = :session) AS INTEGER),
  CAST(EXISTS (SELECT 1 FROM approval WHERE session_id = :session AND allowed IS NULL) AS INTEGER),
  CAST(EXISTS (SELECT 1 FROM address WHERE session_id = :session) AS INTEGER),
  CAST(EXISTS (SELECT 1 FROM input WHERE session_id = :session) AS INTEGER)
FROM session
WHERE id = :session AND lease_token = :token AND lease_worker = :worker
FOR NO KEY UPDATE OF session;

-- name: lock_unheld
SELECT * FROM session
WHERE id = :session AND lease_worker IS NULL
FOR NO KEY UPDATE;

-- name: lock_any
SELECT * FROM session
WHERE id = :session
FOR NO KEY UPDATE;

-- name: get_last_position
-- The newest position up to which all events are visible to later reads; NULL in an empty store.
SELECT nullif(settled_position(), 0);
