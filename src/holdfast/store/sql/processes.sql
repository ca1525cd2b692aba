-- name: add
-- A process that is about to be started.
INSERT INTO process (id, session_id, command, workdir, folder, host, boot, started_at, started_mono, ttl_seconds, track)
VALUES (:id, :session, :command, :workdir, :folder, :host, :boot, :at, :mono, :ttl_seconds, :track);

-- name: get
SELECT * FROM process WHERE id = :id;

-- name: by_prefix
-- The first few processes whose id begins as given; :after is the first text behind all of those.
SELECT id FROM process WHERE id >= :prefix AND id < :after ORDER BY id LIMIT 5;

-- name: live
-- Processes that have not ended, oldest first.
SELECT * FROM process WHERE ended_at IS NULL ORDER BY id;

-- name: of_session
-- The processes of a session, oldest first.
SELECT * FROM process WHERE session_id = :session ORDER BY id;

-- name: recent
-- The newest processes, ended ones included.
SELECT * FROM process ORDER BY id DESC LIMIT :limit;

-- name: identify
-- Which program it is, once that is known.
UPDATE process SET pid = :pid, process_started = :process_started WHERE id = :id AND pid IS NULL AND ended_at IS NULL;

-- name: see
-- What was last seen of it.
UPDATE process SET track = :track WHERE id = :id AND ended_at IS NULL;

-- name: ask_to_stop
-- Why it is being ended; the first reason stands.
UPDATE process SET stop_reason = coalesce(stop_reason, :reason) WHERE id = :id AND ended_at IS NULL;

-- name: expire
-- It has come to the end of its time to live, once.
UPDATE process SET expired_at = :at WHERE id = :id AND expired_at IS NULL AND ended_at IS NULL RETURNING id;

-- name: end
-- It has ended, once.
UPDATE process SET ended_at = :at, exit_code = :exit_code, end_reason = :reason
WHERE id = :id AND ended_at IS NULL
RETURNING *;

-- name: hand_over
-- Makes the processes of one session that run those of another.
UPDATE process SET session_id = :to WHERE session_id = :session AND ended_at IS NULL RETURNING id;
