-- name: take
-- Makes a worker serve a platform. No row: another live worker does.
INSERT INTO platform (name, worker_id, state, since) VALUES (:name, :worker, 'connecting', :at)
ON CONFLICT (name) DO UPDATE SET worker_id = excluded.worker_id, state = excluded.state, since = excluded.since
WHERE platform.worker_id IS NULL OR platform.worker_id = excluded.worker_id
  OR EXISTS (SELECT 1 FROM worker WHERE worker.id = platform.worker_id AND worker.ended_at IS NOT NULL)
RETURNING *;

-- name: record_state
-- Records the connection state. An unchanged state keeps its start time.
UPDATE platform SET
  since = CASE WHEN state = :state THEN since ELSE :at END,
  error = CASE WHEN :error = '' THEN error ELSE :error END,
  error_at = CASE WHEN :error = '' THEN error_at ELSE :at END,
  state = :state
WHERE name = :name AND worker_id = :worker;

-- name: release
UPDATE platform SET worker_id = NULL, state = 'off', since = :at WHERE name = :name AND worker_id = :worker;

-- name: reserve_inbox_numbers
-- Reserves the next :count numbers for received messages and stores the read position.
INSERT INTO platform (name, state, since, received, position) VALUES (:name, 'off', :at, :count, coalesce(:position, ''))
ON CONFLICT (name) DO UPDATE SET
  received = platform.received + :count, position = coalesce(:position, platform.position)
RETURNING received;

-- name: reserve_outbox_number
-- Reserves the next number for a delivery.
INSERT INTO platform (name, state, since, queued) VALUES (:name, 'off', :at, 1)
ON CONFLICT (name) DO UPDATE SET queued = platform.queued + 1
RETURNING queued;

-- name: get
SELECT * FROM platform WHERE name = :name;

-- name: list_all
SELECT * FROM platform ORDER BY name;
