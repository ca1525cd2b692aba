-- name: register
-- Adds a worker that has just started.
INSERT INTO worker (id, kind, host, boot, pid, process_started, version, started_at, beat_at)
VALUES (:id, :kind, :host, :boot, :pid, :process_started, :version, :at, :at);

-- name: beat
-- One sign of life. No row: the worker was declared dead and must stop.
UPDATE worker SET beat = beat + 1, beat_at = :at, stalled_since = :stalled_since
WHERE id = :id AND ended_at IS NULL
RETURNING beat;

-- name: end
-- Marks a worker as gone, once.
UPDATE worker SET ended_at = :at, end_reason = :reason
WHERE id = :id AND ended_at IS NULL
RETURNING id;

-- name: announce
-- A worker is about to leave.
UPDATE worker SET leaving_at = :at WHERE id = :id AND ended_at IS NULL;

-- name: uncleared
-- Ended workers whose sessions have not all been seen to, a page at a time.
SELECT * FROM worker WHERE ended_at IS NOT NULL AND cleared_at IS NULL AND id > :after ORDER BY id LIMIT :limit;

-- name: clear
-- Everything an ended worker had open was seen to.
UPDATE worker SET cleared_at = :at
WHERE id = :id AND ended_at IS NOT NULL AND cleared_at IS NULL
  AND NOT EXISTS (SELECT 1 FROM session WHERE owner_worker = :id);

-- name: get
SELECT * FROM worker WHERE id = :id;

-- name: alive
-- Workers that have not ended, oldest first.
SELECT * FROM worker WHERE ended_at IS NULL ORDER BY id;

-- name: recent
-- The newest workers, ended ones included.
SELECT * FROM worker ORDER BY id DESC LIMIT :limit;
