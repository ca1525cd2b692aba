-- name: put
-- Stores a finished chunk of a summary if the lease is valid. No row: the lease is lost.
INSERT INTO chunk (session_id, request, from_seq, to_seq, model, summary, at)
SELECT id, :request, :from_seq, :to_seq, :model, :summary, :at FROM session
WHERE id = :session AND lease_token = :token AND lease_worker = :worker
ON CONFLICT (session_id, request) DO UPDATE SET
  model = excluded.model, summary = excluded.summary, at = excluded.at
RETURNING session_id;

-- name: get
SELECT from_seq, to_seq, model, summary FROM chunk WHERE session_id = :session AND request = :request;

-- name: count
SELECT count(*), coalesce(max(to_seq), 0) FROM chunk WHERE session_id = :session;

-- name: delete
-- Deletes the chunks of a summary that is now in the log.
DELETE FROM chunk WHERE session_id = :session;
