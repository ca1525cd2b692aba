-- name: list_recent_sessions
-- Sessions outside the trash that were used since :since, newest first, with the kind of the newest event.
SELECT session.*, worker.beat_at, event.kind
FROM session
  LEFT JOIN worker ON worker.id = coalesce(session.lease_worker, session.owner_worker)
  LEFT JOIN event ON event.session_id = session.id AND event.seq = session.seq
WHERE session.updated_at >= :since AND session.trashed_at IS NULL
ORDER BY session.updated_at DESC, session.id DESC
LIMIT :limit;

-- name: list_unfinished
-- Running and interrupted sessions, newest first, with the kind of the newest event. They are few: the plus keeps the
-- database from scanning all sessions in the order of activity.
SELECT session.*, worker.beat_at, event.kind
FROM session
  LEFT JOIN worker ON worker.id = coalesce(session.lease_worker, session.owner_worker)
  LEFT JOIN event ON event.session_id = session.id AND event.seq = session.seq
WHERE session.open_turn IS NOT NULL AND session.ended_at IS NULL AND session.quarantined IS NULL
  AND session.trashed_at IS NULL
ORDER BY +session.updated_at DESC, session.id DESC
LIMIT :limit;

-- name: find_at_or_after
-- The time of the first event from a position on.
SELECT at FROM event WHERE position >= :position ORDER BY position LIMIT 1;

-- name: list_timeline_events
-- Events that begin or end something between two positions, newest first; the body only for ends.
SELECT position, session_id, kind, at, CASE WHEN kind IN ('turn_ended', 'ended') THEN body END
FROM event
WHERE position >= :first AND position <= :last AND kind IN (
  'session_opened', 'turn_started', 'model_said', 'tool_started', 'tool_ended', 'turn_ended', 'approval_asked',
  'approval_answered', 'ended', 'reopened', 'recovered', 'quarantined', 'compacted'
)
ORDER BY position DESC LIMIT :limit;

-- name: count_waiting
-- The number of queued inputs, open questions and drafts.
SELECT
  (SELECT count(*) FROM input WHERE body <> ''),
  (SELECT count(*) FROM approval WHERE allowed IS NULL),
  (SELECT count(*) FROM draft);

-- name: list_sorted
-- Sessions that match more filters than a page of the list has, in one of several orders: a scan of the table. The last
-- column is the cost, in billionths of a US dollar.
SELECT session.*, worker.beat_at, coalesce(spent.cost, 0)
FROM session
  LEFT JOIN worker ON worker.id = coalesce(session.lease_worker, session.owner_worker)
  LEFT JOIN (
    SELECT session_id, CAST(sum(cost) AS BIGINT) AS cost FROM usage_session GROUP BY session_id
  ) AS spent ON spent.session_id = session.id
WHERE CASE WHEN session.trashed_at IS NULL THEN 0 ELSE 1 END = CAST(:trashed AS INTEGER)
  AND session.side_of IS NULL
  AND (session.source <> 'delegate' OR CAST(:source AS TEXT) = 'delegate')
  AND (CAST(:source AS TEXT) IS NULL OR session.source = :source)
  AND (CAST(:channel AS TEXT) IS NULL OR session.channel = :channel)
  AND (CAST(:model AS TEXT) IS NULL OR session.model = :model)
  AND (CAST(:pinned AS INTEGER) IS NULL OR session.pinned = :pinned)
  AND session.updated_at >= :since AND session.updated_at < :until
  AND coalesce(spent.cost, 0) >= :min_cost
  AND (CAST(:state AS TEXT) IS NULL OR :state = CASE
    WHEN session.ended_at IS NOT NULL THEN 'ended'
    WHEN session.quarantined IS NOT NULL THEN 'quarantined'
    WHEN session.open_turn IS NULL THEN 'waiting'
    WHEN session.asking > 0 THEN 'asking'
    WHEN session.lease_worker IS NULL THEN 'interrupted'
    ELSE 'running' END)
  AND (CAST(:folder AS TEXT) IS NULL OR EXISTS (
    SELECT 1 FROM event
    WHERE event.session_id = session.id AND event.seq = 1 AND lower(event.body) LIKE CAST(:folder AS TEXT) ESCAPE '!'
  ))
  AND (CAST(:failed AS INTEGER) IS NULL OR CAST(:failed AS INTEGER) = CASE WHEN (
    SELECT event.body FROM event
    WHERE event.session_id = session.id AND event.kind IN ('turn_started', 'turn_ended', 'rewound')
    ORDER BY event.seq DESC LIMIT 1
  ) LIKE '%"outcome":"failed"%' THEN 1 ELSE 0 END)
ORDER BY
  CASE WHEN CAST(:sort AS TEXT) = 'title' THEN lower(coalesce(session.title, session.preview)) END,
  CASE CAST(:sort AS TEXT)
    WHEN 'created' THEN session.created_at
    WHEN 'messages' THEN session.message_count
    WHEN 'tokens' THEN session.tokens_in + session.tokens_out
    WHEN 'cost' THEN coalesce(spent.cost, 0)
    ELSE session.updated_at END DESC,
  session.id DESC
LIMIT :limit OFFSET :start;

-- name: list_costs_of
-- The costs of some sessions.
SELECT session_id, CAST(sum(cost) AS BIGINT) FROM usage_session
WHERE session_id IN (
  :id_a, :id_b, :id_c, :id_d, :id_e, :id_f, :id_g, :id_h, :id_i, :id_j,
  :id_k, :id_l, :id_m, :id_n, :id_o, :id_p, :id_q, :id_r, :id_s, :id_t
)
GROUP BY session_id;

-- name: list_models
-- The models of sessions, the most used first.
SELECT model FROM session WHERE trashed_at IS NULL AND model <> '' GROUP BY model ORDER BY count(*) DESC, model LIMIT :limit;
