-- name: lock_held
-- The session, for the holder of its lease. No row: the lease is lost and nothing may be written.
SELECT * FROM session
WHERE id = :session AND lease_token = :token AND lease_worker = :worker;

-- name: lock_held_at_turn_end
-- Like `lock_held`. The last four columns: whether the session has a draft, open questions, reply addresses, queued input.
SELECT session.*,
  CAST(EXISTS (SELECT 1 FROM draft WHERE session_id = :session) AS INTEGER),
  CAST(EXISTS (SELECT 1 FROM approval WHERE session_id = :session AND allowed IS NULL) AS INTEGER),
  CAST(EXISTS (SELECT 1 FROM address WHERE session_id = :session) AS INTEGER),
  CAST(EXISTS (SELECT 1 FROM input WHERE session_id = :session) AS INTEGER)
FROM session
WHERE id = :session AND lease_token = :token AND lease_worker = :worker;

-- name: lock_unheld
-- A session without a lease.
SELECT * FROM session
WHERE id = :session AND lease_worker IS NULL;

-- name: lock_any
-- A session regardless of its lease, for events that are not part of a turn.
SELECT * FROM session
WHERE id = :session;

-- name: add
-- Appends one event.
INSERT INTO event (session_id, seq, kind, at, hash, body)
VALUES (:session, :seq, :kind, :at, :hash, :body);

-- name: update_counts
-- Moves the head and updates the summary when no indexed column has changed but the time.
UPDATE session SET
  seq = :seq, hash = :hash, updated_at = :updated_at, epoch = :epoch, message_count = :message_count, turn_count = :turn_count,
  tokens_in = :tokens_in, tokens_out = :tokens_out, preview = :preview, active_at = :active_at, asking = :asking
WHERE id = :session;

-- name: update_head
-- Moves the head and updates the whole summary.
UPDATE session SET
  seq = :seq, hash = :hash, title = :title, source = :source, channel = :channel, model = :model,
  created_at = :created_at, updated_at = :updated_at, ended_at = :ended_at, end_reason = :end_reason,
  epoch = :epoch, message_count = :message_count, turn_count = :turn_count,
  tokens_in = :tokens_in, tokens_out = :tokens_out, parent_id = :parent_id, side_of = :side_of,
  preview = :preview, pinned = :pinned, trashed_at = :trashed_at, open_turn = :open_turn, quarantined = :quarantined,
  active_at = :active_at, asking = :asking, mode = :mode,
  goal = :goal
WHERE id = :session;

-- name: list_range
-- Events of a session from :first to :last, in order.
SELECT seq, kind, at, hash, body FROM event
WHERE session_id = :session AND seq >= :first AND seq <= :last
ORDER BY seq;

-- name: get_hash
-- The hash of one event.
SELECT hash FROM event WHERE session_id = :session AND seq = :seq;

-- name: list_after_position
-- Events of the whole store after a position, in the order of their commits.
SELECT position, session_id, seq, kind, at, body FROM event
WHERE position > :after AND position <= :upto
ORDER BY position LIMIT :limit;

-- name: get_last_position
-- The newest position; NULL in an empty store.
SELECT max(position) FROM event;

-- name: get_at_position
-- One event by its position.
SELECT session_id, seq, kind, at, body FROM event WHERE position = :position;

-- name: put_draft
-- Saves the newest text of a streaming reply if the lease is valid.
INSERT INTO draft (session_id, turn_id, body, at, notice, called)
SELECT id, :turn_id, :body, :at, :notice, :called FROM session
WHERE id = :session AND lease_token = :token AND lease_worker = :worker
ON CONFLICT (session_id) DO UPDATE
SET turn_id = excluded.turn_id, body = excluded.body, at = excluded.at, notice = excluded.notice,
  called = excluded.called
RETURNING session_id;

-- name: get_draft
-- The saved text of a reply that is not committed yet.
SELECT turn_id, body, at, notice, called FROM draft WHERE session_id = :session;

-- name: delete_draft
-- Deletes the draft; its text is now in the log.
DELETE FROM draft WHERE session_id = :session;

-- name: get_last_copied
-- The event that ends what a session has from another one or from an import. Scans from the end of the log.
SELECT seq FROM event
WHERE session_id = :session AND kind IN ('forked', 'imported')
ORDER BY seq DESC LIMIT 1;
