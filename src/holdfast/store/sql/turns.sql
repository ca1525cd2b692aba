-- name: newest
-- The number of the newest event of a kind, from :first on, whose body is like the pattern. Read from the end of the log.
SELECT seq FROM event
WHERE session_id = :session AND kind = :kind AND seq >= :first AND body LIKE :pattern
ORDER BY seq DESC LIMIT 1;

-- name: oldest
-- The same for the oldest, read from :first on.
SELECT seq FROM event
WHERE session_id = :session AND kind = :kind AND seq >= :first AND body LIKE :pattern
ORDER BY seq LIMIT 1;
