-- name: put
-- Keeps a finished piece of a summary, if the lease still stands. No row: it has changed hands.
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

-- name: drop
-- Forgets the pieces of a summary that stands in the log now.
DELETE FROM chunk WHERE session_id = :session;
