-- name: erase_words
-- Runs after the session itself is deleted: a transaction that was indexing it has ended, and none can start.
DELETE FROM words WHERE session_id = :id;
