-- name: list_prunable
-- Sessions in the trash since before :before, without a lease, a pin, a running process or a running child, oldest first.
SELECT id, title, trashed_at, message_count, preview FROM session
WHERE trashed_at IS NOT NULL AND trashed_at < :before AND lease_worker IS NULL AND pinned = 0
  AND NOT EXISTS (SELECT 1 FROM process WHERE process.session_id = session.id AND process.ended_at IS NULL)
  AND NOT EXISTS (SELECT 1 FROM delegation WHERE delegation.parent_id = session.id AND delegation.ended_at IS NULL)
ORDER BY trashed_at, id;

-- name: is_prunable
-- Like list_prunable, for one session.
SELECT id FROM session
WHERE id = :id AND trashed_at IS NOT NULL AND trashed_at < :before AND lease_worker IS NULL AND pinned = 0
  AND NOT EXISTS (SELECT 1 FROM process WHERE process.session_id = session.id AND process.ended_at IS NULL)
  AND NOT EXISTS (SELECT 1 FROM delegation WHERE delegation.parent_id = session.id AND delegation.ended_at IS NULL);

-- name: find_by_channel
-- A session of a channel, also in the trash.
SELECT id FROM session WHERE channel = :channel LIMIT 1;

-- name: find_by_opening_path
-- A session whose first event contains a path, which may be its working directory.
SELECT session.id FROM session
WHERE EXISTS (
  SELECT 1 FROM event
  WHERE event.session_id = session.id AND event.seq = 1
    AND event.kind = 'session_opened' AND event.body LIKE CAST(:pattern AS TEXT)
)
LIMIT 1;

-- name: erase_events
DELETE FROM event WHERE session_id = :id;

-- name: erase_draft
DELETE FROM draft WHERE session_id = :id;

-- name: erase_requests
DELETE FROM recent_request WHERE session_id = :id;

-- name: erase_keys
DELETE FROM idempotency WHERE session_id = :id;

-- name: erase_inputs
DELETE FROM input WHERE session_id = :id;

-- name: erase_approvals
DELETE FROM approval WHERE session_id = :id;

-- name: erase_activity
DELETE FROM activity WHERE session_id = :id;

-- name: erase_approval_rules
DELETE FROM approval_rule WHERE session_id = :id;

-- name: erase_chunks
DELETE FROM chunk WHERE session_id = :id;

-- name: erase_history
DELETE FROM history WHERE session_id = :id;

-- name: erase_processes
DELETE FROM process WHERE session_id = :id;

-- name: erase_containers
-- Of a container that still exists the labels remain, by which its machine removes it.
DELETE FROM container WHERE session_id = :id;

-- name: erase_delegations
DELETE FROM delegation WHERE child_id = :id OR parent_id = :id;

-- name: erase_goal
DELETE FROM goal WHERE session_id = :id;

-- name: erase_reset_hold
DELETE FROM reset_hold WHERE session_id = :id;

-- name: erase_outbox
DELETE FROM outbox WHERE session_id = :id;

-- name: erase_shares
DELETE FROM share WHERE session_id = :id;

-- name: erase_addresses
DELETE FROM address WHERE session_id = :id;

-- name: erase_usage
-- The sums by day keep what the session has used.
DELETE FROM usage_session WHERE session_id = :id;

-- name: erase_raises
DELETE FROM budget_raise WHERE session_id = :id;

-- name: forget_reservations
-- They still count in the budget of their day.
UPDATE reservation SET session_id = '' WHERE session_id = :id;

-- name: erase_aliases
DELETE FROM alias WHERE session_id = :id;

-- name: erase_channels
DELETE FROM channel WHERE session_id = :id;

-- name: erase
DELETE FROM session WHERE id = :id AND lease_worker IS NULL AND trashed_at IS NOT NULL;

-- name: erase_words
-- Nothing to do: the search file contains no texts, and removes pruned events when it finds them.
SELECT 1 WHERE :id IS NULL;

-- name: erase_file_changes
DELETE FROM file_change WHERE session_id = :id;

-- name: erase_file_images
DELETE FROM file_image WHERE session_id = :id;
