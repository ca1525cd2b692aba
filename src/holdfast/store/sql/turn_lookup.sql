-- name: find_newest
-- The newest event of a kind, from :first on, whose body matches the pattern. Scans from the end of the log.
SELECT seq FROM event
WHERE session_id = :session AND kind = :kind AND seq >= :first AND body LIKE :pattern
ORDER BY seq DESC LIMIT 1;

-- name: find_oldest
-- The oldest event, scanned from :first on.
SELECT seq FROM event
WHERE session_id = :session AND kind = :kind AND seq >= :first AND body LIKE :pattern
ORDER BY seq LIMIT 1;
