-- name: list_versions
-- Changes of a session's plan, and rewinds, which take back what was after an event; the newest first.
SELECT seq, kind, body FROM event
WHERE session_id = :session AND kind IN ('plan_changed', 'rewound') AND seq < :before
ORDER BY seq DESC LIMIT :limit;
