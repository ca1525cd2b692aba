-- name: get
SELECT body FROM goal WHERE session_id = :session;

-- name: put
-- Writes the goal of a session as it is after the newest events.
INSERT INTO goal (session_id, state, due, deadline_at, worker_id, body)
VALUES (:session, :state, :due, :deadline_at, :runner, :body)
ON CONFLICT (session_id) DO UPDATE SET
  state = excluded.state, due = excluded.due, deadline_at = excluded.deadline_at, worker_id = excluded.worker_id,
  body = excluded.body;

-- name: delete
DELETE FROM goal WHERE session_id = :session;

-- name: list_due
-- Sessions whose goals this worker should check: it ran their newest turn, owns them, or nobody does and they need no person.
-- While a sub-agent works in the background, the goal waits: its result will start a turn.
SELECT goal.session_id
FROM goal JOIN session ON session.id = goal.session_id
WHERE goal.state = 'active' AND goal.due = 1 AND goal.deadline_at > :at
  AND session.open_turn IS NULL AND session.lease_worker IS NULL AND session.ended_at IS NULL
  AND session.trashed_at IS NULL
  AND (
    session.owner_worker = :holder
    OR (goal.worker_id = :holder AND session.owner_worker IS NULL)
    OR (session.owner_worker IS NULL AND session.source IN ('api', 'gateway', 'cron', 'batch', 'delegate'))
  )
  AND NOT EXISTS (
    SELECT 1 FROM delegation
    WHERE delegation.parent_id = session.id AND delegation.ended_at IS NULL AND delegation.delivery = 'wake'
  )
ORDER BY goal.session_id;

-- name: list_interrupted
-- Sessions of this worker whose turn for a goal has no worker.
SELECT goal.session_id
FROM goal JOIN session ON session.id = goal.session_id
WHERE goal.state = 'active' AND goal.deadline_at > :at AND session.owner_worker = :holder
  AND session.open_turn IS NOT NULL AND session.lease_worker IS NULL AND session.trashed_at IS NULL
  AND session.ended_at IS NULL AND session.quarantined IS NULL
ORDER BY goal.session_id;

-- name: list_expired
SELECT session_id FROM goal
WHERE state IN ('active', 'paused') AND deadline_at <= :at
ORDER BY deadline_at;

-- name: get_next_deadline
SELECT min(deadline_at) FROM goal WHERE state IN ('active', 'paused');
