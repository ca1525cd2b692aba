-- name: due
-- Open sessions that are their channel's current one and in which nothing was said since :before, a page at a time.
-- Those that a worker has open are not looked at: whoever opens them next does.
SELECT session.id FROM session
WHERE session.active_at <= :before AND (session.active_at, session.id) > (:after_at, :after_id)
  AND session.channel IS NOT NULL AND session.ended_at IS NULL AND session.trashed_at IS NULL
  AND session.owner_worker IS NULL AND session.quarantined IS NULL
  AND EXISTS (SELECT 1 FROM channel WHERE channel.session_id = session.id AND channel.channel = session.channel)
ORDER BY session.active_at, session.id LIMIT :limit;

-- name: held
-- Why a reset that was due did not take place, if that was written down since :since.
SELECT reason, at FROM reset_hold WHERE session_id = :session AND at >= :since;

-- name: hold
-- Writes down why a reset did not take place.
INSERT INTO reset_hold (session_id, reason, at) VALUES (:session, :reason, :at)
ON CONFLICT (session_id) DO UPDATE SET reason = excluded.reason, at = excluded.at;

-- name: release
-- The reset has taken place.
DELETE FROM reset_hold WHERE session_id = :session;
