-- name: add
-- A schedule; its first slot is the first one after now.
INSERT INTO schedule (id, cron, timezone, prompt, deliver, model, missed, next_at, created_at)
VALUES (:id, :cron, :timezone, :prompt, :deliver, :model, :missed, :next_at, :at);

-- name: get
SELECT * FROM schedule WHERE id = :id;

-- name: by_prefix
-- The first few schedules whose id begins as given; :after is the first text behind all of those.
SELECT id FROM schedule WHERE id >= :prefix AND id < :after ORDER BY id LIMIT 5;

-- name: all
SELECT * FROM schedule WHERE removed_at IS NULL ORDER BY id;

-- name: due
-- Schedules whose next slot has come, the most overdue first.
SELECT * FROM schedule WHERE removed_at IS NULL AND next_at <= :now ORDER BY next_at, id LIMIT :limit;

-- name: next_due
SELECT min(next_at) FROM schedule WHERE removed_at IS NULL;

-- name: advance
-- Goes on to the next slot. No row: somebody else has, or the schedule was removed.
UPDATE schedule SET next_at = :next_at WHERE id = :id AND next_at = :slot AND removed_at IS NULL RETURNING id;

-- name: remove
-- It stays as a tombstone, with its slots.
UPDATE schedule SET removed_at = :at WHERE id = :id AND removed_at IS NULL RETURNING id;

-- name: open_slot
-- A slot, once.
INSERT INTO slot (schedule_id, due_at, state, reason, session_id, turn_id, began_at, ended_at)
VALUES (:schedule, :due_at, :state, :reason, :session, :turn, :at, :ended_at)
ON CONFLICT (schedule_id, due_at) DO NOTHING
RETURNING due_at;

-- name: running
SELECT due_at FROM slot WHERE schedule_id = :schedule AND state = 'running' LIMIT 1;

-- name: close_slot
-- The end of a slot's turn, once.
UPDATE slot SET state = :state, reason = :reason, ended_at = :at
WHERE session_id = :session AND turn_id = :turn AND state = 'running'
RETURNING schedule_id;

-- name: orphans
-- Slots that run although nobody will go on with their session: it is in quarantine, gone, or nothing is left open in it.
SELECT slot.schedule_id, slot.due_at, slot.session_id, slot.turn_id, session.quarantined
FROM slot LEFT JOIN session ON session.id = slot.session_id
WHERE slot.state = 'running' AND (
  session.id IS NULL OR session.quarantined IS NOT NULL OR session.trashed_at IS NOT NULL
  OR session.open_turn IS NULL AND NOT EXISTS (SELECT 1 FROM input WHERE input.session_id = slot.session_id)
);

-- name: counts
-- How many slots of a schedule ended in which way.
SELECT state, count(*) FROM slot WHERE schedule_id = :schedule GROUP BY state ORDER BY state;

-- name: slots
-- The newest slots of a schedule.
SELECT * FROM slot WHERE schedule_id = :schedule ORDER BY due_at DESC LIMIT :limit;
