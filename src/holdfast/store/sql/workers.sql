-- name: register
-- Adds a worker that has just started.
INSERT INTO worker (id, kind, host, boot, pid, process_started, version, started_at, beat_at)
VALUES (:id, :kind, :host, :boot, :pid, :process_started, :version, :at, :at);

-- name: record_heartbeat
-- Records a heartbeat. No row: the worker was declared dead and must stop.
UPDATE worker SET beat = beat + 1, beat_at = :at, stalled_since = :stalled_since, tasks = COALESCE(:tasks, tasks)
WHERE id = :id AND ended_at IS NULL
RETURNING beat;

-- name: mark_dead
-- Marks a worker as ended, once.
UPDATE worker SET ended_at = :at, end_reason = :reason
WHERE id = :id AND ended_at IS NULL
RETURNING id;

-- name: announce_shutdown
-- Records that a worker is shutting down.
UPDATE worker SET leaving_at = :at WHERE id = :id AND ended_at IS NULL;

-- name: list_uncleared
-- Ended workers whose sessions are not all cleaned up, a page at a time.
SELECT * FROM worker WHERE ended_at IS NOT NULL AND cleared_at IS NULL AND id > :after ORDER BY id LIMIT :limit;

-- name: mark_cleared
-- Marks an ended worker as cleaned up once it owns no session.
UPDATE worker SET cleared_at = :at
WHERE id = :id AND ended_at IS NOT NULL AND cleared_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM session WHERE owner_worker = :id);

-- name: get
SELECT * FROM worker WHERE id = :id;

-- name: list_alive
-- Workers that have not ended, oldest first.
SELECT * FROM worker WHERE ended_at IS NULL ORDER BY id;

-- name: list_recent
-- The newest workers, ended ones included.
SELECT * FROM worker ORDER BY id DESC LIMIT :limit;
