-- name: add
-- Records a process before it starts.
INSERT INTO process (id, session_id, command, workdir, folder, host, boot, started_at, started_mono, ttl_seconds, track)
VALUES (:id, :session, :command, :workdir, :folder, :host, :boot, :at, :mono, :ttl_seconds, :track);

-- name: get
SELECT * FROM process WHERE id = :id;

-- name: by_prefix
-- The first few processes whose id has a prefix; :after is greater than all of them.
SELECT id FROM process WHERE id >= :prefix AND id < :after ORDER BY id LIMIT 5;

-- name: list_live
-- Processes that have not ended, oldest first.
SELECT * FROM process WHERE ended_at IS NULL ORDER BY id;

-- name: list_by_session
-- The processes of a session, oldest first.
SELECT * FROM process WHERE session_id = :session ORDER BY id;

-- name: list_recent
-- The newest processes, ended ones included.
SELECT * FROM process ORDER BY id DESC LIMIT :limit;

-- name: identify
-- Records the pid and start time, once.
UPDATE process SET pid = :pid, process_started = :process_started WHERE id = :id AND pid IS NULL AND ended_at IS NULL;

-- name: record_track
-- Records the last sample.
UPDATE process SET track = :track WHERE id = :id AND ended_at IS NULL;

-- name: set_stop_reason
-- Records why it is being stopped; the first reason stays.
UPDATE process SET stop_reason = coalesce(stop_reason, :reason) WHERE id = :id AND ended_at IS NULL;

-- name: expire
-- Records once that it has exceeded its time to live.
UPDATE process SET expired_at = :at WHERE id = :id AND expired_at IS NULL AND ended_at IS NULL RETURNING id;

-- name: end
-- Records once that it has ended.
UPDATE process SET ended_at = :at, exit_code = :exit_code, end_reason = :reason
WHERE id = :id AND ended_at IS NULL
RETURNING *;

-- name: hand_over
-- Moves the running processes of a session to another.
UPDATE process SET session_id = :to WHERE session_id = :session AND ended_at IS NULL RETURNING id;
