-- name: sprites
-- Sessions outside the trash that were used since :since, the newest first, each with the kind of its newest event.
SELECT session.*, worker.beat_at, event.kind
FROM session
  LEFT JOIN worker ON worker.id = coalesce(session.lease_worker, session.owner_worker)
  LEFT JOIN event ON event.session_id = session.id AND event.seq = session.seq
WHERE session.updated_at >= :since AND session.trashed_at IS NULL
ORDER BY session.updated_at DESC, session.id DESC
LIMIT :limit;

-- name: unfinished
-- Sessions that are running or interrupted, the newest first, each with the kind of its newest event. They are few:
-- the plus keeps the database from walking through all sessions in the order of their activity to find them.
SELECT session.*, worker.beat_at, event.kind
FROM session
  LEFT JOIN worker ON worker.id = coalesce(session.lease_worker, session.owner_worker)
  LEFT JOIN event ON event.session_id = session.id AND event.seq = session.seq
WHERE session.open_turn IS NOT NULL AND session.ended_at IS NULL AND session.quarantined IS NULL
  AND session.trashed_at IS NULL
ORDER BY +session.updated_at DESC, session.id DESC
LIMIT :limit;

-- name: at_or_after
-- When the first event from a position on was committed.
SELECT at FROM event WHERE position >= :position ORDER BY position LIMIT 1;

-- name: moments
-- What began or ended between two positions, the newest first; the words are left where they are, but for those of ends.
SELECT position, session_id, kind, at, CASE WHEN kind IN ('turn_ended', 'ended') THEN body END
FROM event
WHERE position >= :first AND position <= :last AND kind IN (
  'session_opened', 'turn_started', 'model_said', 'tool_started', 'tool_ended', 'turn_ended', 'approval_asked',
  'approval_answered', 'ended', 'reopened', 'recovered', 'quarantined', 'compacted'
)
ORDER BY position DESC LIMIT :limit;

-- name: depths
-- How many words wait for their turn, how many questions for an answer, and how many replies are being written.
SELECT
  (SELECT count(*) FROM input WHERE body <> ''),
  (SELECT count(*) FROM approval WHERE allowed IS NULL),
  (SELECT count(*) FROM draft);
