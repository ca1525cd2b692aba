-- name: list_due
-- Open sessions that are the current one of their channel and have had no message since :before, a page at a time.
-- Not those that a worker owns, which are checked when they are next opened, and not those without a message.
SELECT session.id FROM session
WHERE session.active_at <= :before AND (session.active_at, session.id) > (:after_at, :after_id)
  AND session.channel IS NOT NULL AND session.ended_at IS NULL AND session.trashed_at IS NULL
  AND session.owner_worker IS NULL AND session.quarantined IS NULL AND session.message_count > 0
  AND EXISTS (SELECT 1 FROM channel WHERE channel.session_id = session.id AND channel.channel = session.channel)
ORDER BY session.active_at, session.id LIMIT :limit;

-- name: get_skip
-- Why a due reset was skipped, if that was recorded since :since.
SELECT reason, at FROM reset_hold WHERE session_id = :session AND at >= :since;

-- name: put_skip
-- Records why a reset was skipped.
INSERT INTO reset_hold (session_id, reason, at) VALUES (:session, :reason, :at)
ON CONFLICT (session_id) DO UPDATE SET reason = excluded.reason, at = excluded.at;

-- name: delete_skip
-- Deletes the record after the reset.
DELETE FROM reset_hold WHERE session_id = :session;
