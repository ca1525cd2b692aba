-- name: next_number
SELECT coalesce(max(number), 0) + 1 FROM file_change WHERE session_id = :session;

-- name: add
-- Records a change before it is made.
INSERT INTO file_change (session_id, number, seq, host, path, before_hash, after_hash, mode, folder, problem, at)
VALUES (:session, :number, :seq, :host, :path, :before_hash, :after_hash, :mode, :folder, :problem, :at);

-- name: list_results
-- The content that each recorded change has left, oldest first.
SELECT path, after_hash FROM file_change WHERE session_id = :session ORDER BY number;

-- name: add_image
-- Stores the content that a file had. The same content is stored once per session.
INSERT INTO file_image (session_id, hash, size, number, content) VALUES (:session, :hash, :size, :number, :content)
ON CONFLICT (session_id, hash) DO UPDATE SET number = excluded.number;

-- name: list_after
-- Changes after an event, oldest first.
SELECT number, seq, host, path, before_hash, after_hash, mode, folder, problem FROM file_change
WHERE session_id = :session AND seq > :seq ORDER BY number;

-- name: get_image
SELECT content FROM file_image WHERE session_id = :session AND hash = :hash;

-- name: list_sizes
-- The contents of a session, newest first, without themselves.
SELECT number, size FROM file_image WHERE session_id = :session ORDER BY number DESC;

-- name: totals
-- How many changes and contents the store has, and the size of the contents.
SELECT (SELECT count(*) FROM file_change), count(*), coalesce(sum(size), 0) FROM file_image;

-- name: delete_old_images
DELETE FROM file_image WHERE session_id = :session AND number <= :upto;

-- name: delete_old_changes
DELETE FROM file_change WHERE session_id = :session AND number <= :upto;
