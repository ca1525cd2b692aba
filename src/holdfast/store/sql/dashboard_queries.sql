-- name: list_recent_sessions
-- Sessions outside the trash that were used since :since, newest first, with the kind of the newest event.
SELECT session.*, worker.beat_at, event.kind
FROM session
  LEFT JOIN worker ON worker.id = coalesce(session.lease_worker, session.owner_worker)
  LEFT JOIN event ON event.session_id = session.id AND event.seq = session.seq
WHERE session.updated_at >= :since AND session.trashed_at IS NULL
ORDER BY session.updated_at DESC, session.id DESC
LIMIT :limit;

-- name: list_unfinished
-- Running and interrupted sessions, newest first, with the kind of the newest event. They are few: the plus keeps the
-- database from scanning all sessions in the order of activity.
SELECT session.*, worker.beat_at, event.kind
FROM session
  LEFT JOIN worker ON worker.id = coalesce(session.lease_worker, session.owner_worker)
  LEFT JOIN event ON event.session_id = session.id AND event.seq = session.seq
WHERE session.open_turn IS NOT NULL AND session.ended_at IS NULL AND session.quarantined IS NULL
  AND session.trashed_at IS NULL
ORDER BY +session.updated_at DESC, session.id DESC
LIMIT :limit;

-- name: find_at_or_after
-- The time of the first event from a position on.
SELECT at FROM event WHERE position >= :position ORDER BY position LIMIT 1;

-- name: list_timeline_events
-- Events that begin or end something between two positions, newest first; the body only for ends.
SELECT position, session_id, kind, at, CASE WHEN kind IN ('turn_ended', 'ended') THEN body END
FROM event
WHERE position >= :first AND position <= :last AND kind IN (
  'session_opened', 'turn_started', 'model_said', 'tool_started', 'tool_ended', 'turn_ended', 'approval_asked',
  'approval_answered', 'ended', 'reopened', 'recovered', 'quarantined', 'compacted'
)
ORDER BY position DESC LIMIT :limit;

-- name: count_waiting
-- The number of queued inputs, open questions and drafts.
SELECT
  (SELECT count(*) FROM input WHERE body <> ''),
  (SELECT count(*) FROM approval WHERE allowed IS NULL),
  (SELECT count(*) FROM draft);
