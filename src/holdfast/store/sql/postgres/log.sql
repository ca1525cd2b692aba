-- name: held
-- As in SQLite, where a writer is alone: nobody changes the row until the end of the transaction.
SELECT * FROM session
WHERE id = :session AND lease_token = :token AND lease_worker = :worker
FOR NO KEY UPDATE;

-- name: unheld
SELECT * FROM session
WHERE id = :session AND lease_worker IS NULL
FOR NO KEY UPDATE;

-- name: beside
SELECT * FROM session
WHERE id = :session
FOR NO KEY UPDATE;

-- name: last_position
-- The newest position below which nothing can become visible any more, to reads that begin after this one; NULL in an
-- empty store.
SELECT nullif(settled_position(), 0);
