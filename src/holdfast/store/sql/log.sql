-- name: held
-- A session for the holder of its lease. No row: it has changed hands and nothing may be written.
SELECT * FROM session
WHERE id = :session AND lease_token = :token AND lease_worker = :worker;

-- name: unheld
-- A session while nobody holds it.
SELECT * FROM session
WHERE id = :session AND lease_worker IS NULL;

-- name: beside
-- A session whoever holds it: for facts that are no part of a turn.
SELECT * FROM session
WHERE id = :session;

-- name: add
-- Adds one event in its place.
INSERT INTO event (session_id, seq, kind, at, hash, body)
VALUES (:session, :seq, :kind, :at, :hash, :body);

-- name: settle_counts
-- Moves the head and writes what the log now adds up to, when no column with an index of its own has changed but the time.
UPDATE session SET
  seq = :seq, hash = :hash, updated_at = :updated_at, epoch = :epoch, message_count = :message_count, turn_count = :turn_count,
  tokens_in = :tokens_in, tokens_out = :tokens_out, preview = :preview, active_at = :active_at
WHERE id = :session;

-- name: settle
-- Moves the head and writes all that the log now adds up to.
UPDATE session SET
  seq = :seq, hash = :hash, title = :title, source = :source, channel = :channel, model = :model,
  created_at = :created_at, updated_at = :updated_at, ended_at = :ended_at, end_reason = :end_reason,
  epoch = :epoch, message_count = :message_count, turn_count = :turn_count,
  tokens_in = :tokens_in, tokens_out = :tokens_out, parent_id = :parent_id, side_of = :side_of,
  preview = :preview, pinned = :pinned, trashed_at = :trashed_at, open_turn = :open_turn, quarantined = :quarantined,
  active_at = :active_at
WHERE id = :session;

-- name: range
-- Events of a session from :first to :last, in order.
SELECT seq, kind, at, hash, body FROM event
WHERE session_id = :session AND seq >= :first AND seq <= :last
ORDER BY seq;

-- name: follow
-- Events of the whole store after a position, in the order of their commits.
SELECT position, session_id, seq, kind, at, body FROM event
WHERE position > :after AND position <= :upto
ORDER BY position LIMIT :limit;

-- name: last_position
-- The newest position; NULL in an empty store.
SELECT max(position) FROM event;

-- name: at_position
-- One event by its position.
SELECT session_id, seq, kind, at, body FROM event WHERE position = :position;

-- name: put_draft
-- Keeps the newest text of a reply that is still streaming, if the lease still stands.
INSERT INTO draft (session_id, turn_id, body, at)
SELECT id, :turn, :body, :at FROM session
WHERE id = :session AND lease_token = :token AND lease_worker = :worker
ON CONFLICT (session_id) DO UPDATE SET turn_id = excluded.turn_id, body = excluded.body, at = excluded.at
RETURNING session_id;

-- name: draft
-- What had been streamed of a reply that is not committed yet.
SELECT turn_id, body, at FROM draft WHERE session_id = :session;

-- name: drop_draft
-- Forgets the draft, whose words are now in the log.
DELETE FROM draft WHERE session_id = :session;
