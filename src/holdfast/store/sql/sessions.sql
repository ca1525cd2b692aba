-- name: create
-- Adds an empty session. No row: it exists.
INSERT INTO session (
  id, seq, hash, source, model, created_at, updated_at, epoch,
  message_count, turn_count, tokens_in, tokens_out, preview, pinned
) VALUES (:id, 0, :hash, :source, '', :at, :at, 0, 0, 0, 0, 0, '', 0)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: get
SELECT session.*, worker.beat_at
FROM session LEFT JOIN worker ON worker.id = coalesce(session.lease_worker, session.owner_worker)
WHERE session.id = :id;

-- name: by_prefix
-- The first few sessions whose id has a prefix; :after is greater than all of them.
SELECT id FROM session WHERE id >= :prefix AND id < :after AND trashed_at IS NULL ORDER BY id LIMIT 5;

-- name: by_title
-- The most recently used session with this title, and the number of sessions with it.
SELECT id, count(*) OVER () FROM session WHERE title = :title AND trashed_at IS NULL
ORDER BY updated_at DESC, id DESC LIMIT 1;

-- name: list_ids
-- All sessions after an id, oldest first, a page at a time.
SELECT id FROM session WHERE id > :after ORDER BY id LIMIT :limit;

-- name: count
SELECT count(*), coalesce(sum(seq), 0) FROM session;

-- name: find_newest_system_text
-- The newest change of a session's system text. The kind is a literal so that the partial index is used.
SELECT seq FROM event WHERE session_id = :session AND kind = 'system_changed' ORDER BY seq DESC LIMIT 1;
