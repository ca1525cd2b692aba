-- name: add
-- Adds a schedule; its first slot is the first one after now.
INSERT INTO schedule (id, cron, timezone, prompt, deliver, model, missed, next_at, created_at, terminal)
VALUES (:id, :cron, :timezone, :prompt, :deliver, :model, :missed, :next_at, :at, :terminal);

-- name: get
SELECT * FROM schedule WHERE id = :id;

-- name: by_prefix
-- The first few schedules whose id has a prefix; :after is greater than all of them.
SELECT id FROM schedule WHERE id >= :prefix AND id < :after ORDER BY id LIMIT 5;

-- name: list_all
SELECT * FROM schedule WHERE removed_at IS NULL ORDER BY id;

-- name: list_due
-- Schedules whose next slot is due, the most overdue first.
SELECT * FROM schedule WHERE removed_at IS NULL AND next_at <= :now ORDER BY next_at, id LIMIT :limit;

-- name: get_next_due
SELECT min(next_at) FROM schedule WHERE removed_at IS NULL;

-- name: advance
-- Advances to the next slot. No row: another worker has, or the schedule was removed.
UPDATE schedule SET next_at = :next_at WHERE id = :id AND next_at = :slot AND removed_at IS NULL RETURNING id;

-- name: remove
-- Marks it as removed; the row and its slots stay.
UPDATE schedule SET removed_at = :at WHERE id = :id AND removed_at IS NULL RETURNING id;

-- name: open_slot
-- Adds a slot. No row: it exists.
INSERT INTO slot (schedule_id, due_at, state, reason, session_id, turn_id, began_at, ended_at)
VALUES (:schedule, :due_at, :state, :reason, :session, :turn, :at, :ended_at)
ON CONFLICT (schedule_id, due_at) DO NOTHING
RETURNING due_at;

-- name: get_slot
SELECT due_at FROM slot WHERE schedule_id = :schedule AND due_at = :due_at;

-- name: find_first_early_slot
-- The first slot that was skipped because a clock was ahead.
SELECT min(due_at) FROM slot WHERE schedule_id = :schedule AND began_at > :later AND state IN ('missed', 'skipped');

-- name: delete_early_slots
-- Deletes slots that were skipped before they were due, or because a clock was ahead.
DELETE FROM slot
WHERE schedule_id = :schedule AND (due_at > :now OR began_at > :later) AND state IN ('missed', 'skipped');

-- name: find_running_slot
SELECT due_at FROM slot WHERE schedule_id = :schedule AND state = 'running' LIMIT 1;

-- name: close_slot
-- Records once that the turn of a slot has ended.
UPDATE slot SET state = :state, reason = :reason, ended_at = :at
WHERE session_id = :session AND turn_id = :turn AND state = 'running'
RETURNING schedule_id;

-- name: list_orphan_slots
-- Running slots whose session will not continue: it is quarantined, gone, or has no open turn and no input.
SELECT slot.schedule_id, slot.due_at, slot.session_id, slot.turn_id, session.quarantined
FROM slot LEFT JOIN session ON session.id = slot.session_id
WHERE slot.state = 'running' AND (
  session.id IS NULL OR session.quarantined IS NOT NULL OR session.trashed_at IS NOT NULL
  OR session.open_turn IS NULL AND NOT EXISTS (SELECT 1 FROM input WHERE input.session_id = slot.session_id)
);

-- name: count_slots
-- The number of slots of a schedule in each state.
SELECT state, count(*) FROM slot WHERE schedule_id = :schedule GROUP BY state ORDER BY state;

-- name: list_slots
-- The newest slots of a schedule.
SELECT * FROM slot WHERE schedule_id = :schedule ORDER BY due_at DESC LIMIT :limit;
