-- name: create
-- Adds an empty session. No row: it was there.
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
-- The first few sessions whose id begins as given; :after is the first text behind all of those.
SELECT id FROM session WHERE id >= :prefix AND id < :after AND trashed_at IS NULL ORDER BY id LIMIT 5;

-- name: by_title
-- The session with exactly this title that was used last, and how many have it.
SELECT id, count(*) OVER () FROM session WHERE title = :title AND trashed_at IS NULL
ORDER BY updated_at DESC, id DESC LIMIT 1;

-- name: list
-- A page of sessions, newest activity first, behind the place where the last page ended.
SELECT session.*, worker.beat_at
FROM session LEFT JOIN worker ON worker.id = coalesce(session.lease_worker, session.owner_worker)
WHERE (session.updated_at, session.id) < (:before_at, :before_id)
  AND (CAST(:trashed AS INTEGER) = CASE WHEN session.trashed_at IS NULL THEN 0 ELSE 1 END OR CAST(:trashed AS INTEGER) = 2)
  AND (CAST(:sides AS INTEGER) = 1 OR session.side_of IS NULL)
  AND (CAST(:source AS TEXT) IS NULL OR session.source = :source)
  AND (CAST(:channel AS TEXT) IS NULL OR session.channel = :channel)
  AND (CAST(:model AS TEXT) IS NULL OR session.model = :model)
  AND (CAST(:pinned AS INTEGER) IS NULL OR session.pinned = :pinned)
  AND (CAST(:state AS TEXT) IS NULL OR :state = CASE
    WHEN session.ended_at IS NOT NULL THEN 'ended'
    WHEN session.quarantined IS NOT NULL THEN 'quarantined'
    WHEN session.open_turn IS NULL THEN 'waiting'
    WHEN session.lease_worker IS NULL THEN 'interrupted'
    ELSE 'running' END)
ORDER BY session.updated_at DESC, session.id DESC
LIMIT :limit;

-- name: list_rare
-- As list, for filters that few sessions fit: one walk through the table in its own order, then sorted. The plus keeps it from the index of activity.
SELECT session.*, worker.beat_at
FROM session LEFT JOIN worker ON worker.id = coalesce(session.lease_worker, session.owner_worker)
WHERE (+session.updated_at, session.id) < (:before_at, :before_id)
  AND (CAST(:trashed AS INTEGER) = CASE WHEN session.trashed_at IS NULL THEN 0 ELSE 1 END OR CAST(:trashed AS INTEGER) = 2)
  AND (CAST(:sides AS INTEGER) = 1 OR session.side_of IS NULL)
  AND (CAST(:source AS TEXT) IS NULL OR session.source = :source)
  AND (CAST(:channel AS TEXT) IS NULL OR session.channel = :channel)
  AND (CAST(:model AS TEXT) IS NULL OR session.model = :model)
  AND (CAST(:pinned AS INTEGER) IS NULL OR session.pinned = :pinned)
  AND (CAST(:state AS TEXT) IS NULL OR :state = CASE
    WHEN session.ended_at IS NOT NULL THEN 'ended'
    WHEN session.quarantined IS NOT NULL THEN 'quarantined'
    WHEN session.open_turn IS NULL THEN 'waiting'
    WHEN session.lease_worker IS NULL THEN 'interrupted'
    ELSE 'running' END)
ORDER BY +session.updated_at DESC, session.id DESC
LIMIT :limit;

-- name: stats
-- How many sessions there are outside the trash, by source and by how they ended; those that are open also by
-- whether they are in quarantine, whether a turn is open in them, and whose they are.
SELECT source, end_reason,
  CASE WHEN ended_at IS NULL AND quarantined IS NOT NULL THEN 1 ELSE 0 END AS is_quarantined,
  CASE WHEN ended_at IS NULL AND open_turn IS NOT NULL THEN 1 ELSE 0 END AS is_in_turn,
  CASE WHEN ended_at IS NULL THEN coalesce(lease_worker, owner_worker) END AS worker,
  count(*)
FROM session
WHERE trashed_at IS NULL
GROUP BY 1, 2, 3, 4, 5
ORDER BY 1, 2, 3, 4, 5;

-- name: ids
-- Every session behind an id, in order of birth: for walks over the whole store.
SELECT id FROM session WHERE id > :after ORDER BY id LIMIT :limit;

-- name: count
SELECT count(*), coalesce(sum(seq), 0) FROM session;

-- name: copy_events
-- Gives a fork the part of the log it shares with its parent, hashes included.
INSERT INTO event (session_id, seq, kind, at, hash, body)
SELECT :id, seq, kind, at, hash, body FROM event
WHERE session_id = :parent AND seq <= :upto
ORDER BY seq;

-- name: prunable
-- Sessions that lie in the trash since before :before and are nobody's, with no process that lives, oldest first.
SELECT id, title, trashed_at, message_count, preview FROM session
WHERE trashed_at IS NOT NULL AND trashed_at < :before AND lease_worker IS NULL AND pinned = 0
  AND NOT EXISTS (SELECT 1 FROM process WHERE process.session_id = session.id AND process.ended_at IS NULL)
ORDER BY trashed_at, id;

-- name: is_prunable
-- As prunable, for one session.
SELECT id FROM session
WHERE id = :id AND trashed_at IS NOT NULL AND trashed_at < :before AND lease_worker IS NULL AND pinned = 0
  AND NOT EXISTS (SELECT 1 FROM process WHERE process.session_id = session.id AND process.ended_at IS NULL);

-- name: erase_events
DELETE FROM event WHERE session_id = :id;

-- name: erase_draft
DELETE FROM draft WHERE session_id = :id;

-- name: erase_keys
DELETE FROM idempotency WHERE session_id = :id;

-- name: erase_inputs
DELETE FROM input WHERE session_id = :id;

-- name: erase_approvals
DELETE FROM approval WHERE session_id = :id;

-- name: erase_chunks
DELETE FROM chunk WHERE session_id = :id;

-- name: erase_history
DELETE FROM history WHERE session_id = :id;

-- name: erase_processes
DELETE FROM process WHERE session_id = :id;

-- name: erase_reset_hold
DELETE FROM reset_hold WHERE session_id = :id;

-- name: erase_outbox
DELETE FROM outbox WHERE session_id = :id;

-- name: erase_addresses
DELETE FROM address WHERE session_id = :id;

-- name: erase_aliases
DELETE FROM alias WHERE session_id = :id;

-- name: erase_channels
DELETE FROM channel WHERE session_id = :id;

-- name: erase
DELETE FROM session WHERE id = :id AND lease_worker IS NULL AND trashed_at IS NOT NULL;

-- name: erase_words
-- Nothing to do here: the file of the search keeps no texts, and forgets what is gone when it comes across it.
SELECT 1 WHERE :id IS NULL;

-- name: in_hand
-- Open sessions that a worker holds or has open, or whose turn is open, those used last first.
SELECT session.*, worker.beat_at
FROM session LEFT JOIN worker ON worker.id = coalesce(session.lease_worker, session.owner_worker)
WHERE session.id IN (
  SELECT id FROM session WHERE lease_worker IS NOT NULL
  UNION SELECT id FROM session WHERE owner_worker IS NOT NULL
  UNION SELECT id FROM session WHERE open_turn IS NOT NULL
) AND session.trashed_at IS NULL AND session.ended_at IS NULL
ORDER BY session.updated_at DESC, session.id DESC
LIMIT :limit;
