-- name: list_page
-- A page of sessions, newest activity first, after the end of the previous page.
SELECT session.*, worker.beat_at
FROM session LEFT JOIN worker ON worker.id = coalesce(session.lease_worker, session.owner_worker)
WHERE (session.updated_at, session.id) < (:before_at, :before_id)
  AND (CAST(:trashed AS INTEGER) = CASE WHEN session.trashed_at IS NULL THEN 0 ELSE 1 END OR CAST(:trashed AS INTEGER) = 2)
  AND (CAST(:sides AS INTEGER) = 1 OR session.side_of IS NULL)
  AND (CAST(:children AS INTEGER) = 1 OR session.source <> 'delegate' OR CAST(:source AS TEXT) = 'delegate')
  AND (CAST(:source AS TEXT) IS NULL OR session.source = :source)
  AND (CAST(:channel AS TEXT) IS NULL OR session.channel = :channel)
  AND (CAST(:model AS TEXT) IS NULL OR session.model = :model)
  AND (CAST(:pinned AS INTEGER) IS NULL OR session.pinned = :pinned)
  AND (CAST(:state AS TEXT) IS NULL OR :state = CASE
    WHEN session.ended_at IS NOT NULL THEN 'ended'
    WHEN session.quarantined IS NOT NULL THEN 'quarantined'
    WHEN session.open_turn IS NULL THEN 'waiting'
    WHEN session.asking > 0 THEN 'asking'
    WHEN session.lease_worker IS NULL THEN 'interrupted'
    ELSE 'running' END)
ORDER BY session.updated_at DESC, session.id DESC
LIMIT :limit;

-- name: list_page_rare
-- Like list_page, for filters that few sessions match: one scan of the table, then a sort. The plus prevents use of the
-- activity index.
SELECT session.*, worker.beat_at
FROM session LEFT JOIN worker ON worker.id = coalesce(session.lease_worker, session.owner_worker)
WHERE (+session.updated_at, session.id) < (:before_at, :before_id)
  AND (CAST(:trashed AS INTEGER) = CASE WHEN session.trashed_at IS NULL THEN 0 ELSE 1 END OR CAST(:trashed AS INTEGER) = 2)
  AND (CAST(:sides AS INTEGER) = 1 OR session.side_of IS NULL)
  AND (CAST(:children AS INTEGER) = 1 OR session.source <> 'delegate' OR CAST(:source AS TEXT) = 'delegate')
  AND (CAST(:source AS TEXT) IS NULL OR session.source = :source)
  AND (CAST(:channel AS TEXT) IS NULL OR session.channel = :channel)
  AND (CAST(:model AS TEXT) IS NULL OR session.model = :model)
  AND (CAST(:pinned AS INTEGER) IS NULL OR session.pinned = :pinned)
  AND (CAST(:state AS TEXT) IS NULL OR :state = CASE
    WHEN session.ended_at IS NOT NULL THEN 'ended'
    WHEN session.quarantined IS NOT NULL THEN 'quarantined'
    WHEN session.open_turn IS NULL THEN 'waiting'
    WHEN session.asking > 0 THEN 'asking'
    WHEN session.lease_worker IS NULL THEN 'interrupted'
    ELSE 'running' END)
ORDER BY +session.updated_at DESC, session.id DESC
LIMIT :limit;

-- name: count_by_kind
-- The number of sessions outside the trash by source and end reason; open ones also by quarantine, open turn and
-- worker.
SELECT source, end_reason,
  CASE WHEN ended_at IS NULL AND quarantined IS NOT NULL THEN 1 ELSE 0 END AS is_quarantined,
  CASE WHEN ended_at IS NULL AND open_turn IS NOT NULL THEN 1 ELSE 0 END AS is_in_turn,
  CASE WHEN ended_at IS NULL THEN coalesce(lease_worker, owner_worker) END AS worker,
  count(*)
FROM session
WHERE trashed_at IS NULL
GROUP BY 1, 2, 3, 4, 5
ORDER BY 1, 2, 3, 4, 5;

-- name: list_in_use
-- Open sessions with a lease, an owner or an open turn, most recently used first.
SELECT session.*, worker.beat_at
FROM session LEFT JOIN worker ON worker.id = coalesce(session.lease_worker, session.owner_worker)
WHERE session.id IN (
  SELECT id FROM session WHERE lease_worker IS NOT NULL
  UNION SELECT id FROM session WHERE owner_worker IS NOT NULL
  UNION SELECT id FROM session WHERE open_turn IS NOT NULL
) AND session.trashed_at IS NULL AND session.ended_at IS NULL
ORDER BY session.updated_at DESC, session.id DESC
LIMIT :limit;
