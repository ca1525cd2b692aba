-- name: reserve
INSERT INTO reservation (id, session_id, day, sender, model, amount, state, worker_id, at)
VALUES (:reservation, :of, :day, :sender, :model, :amount, 'open', :holder, :at);

-- name: settle
-- The call is done: its cost replaces the estimate. Without a known cost the estimate counts.
UPDATE reservation SET
  amount = coalesce(CAST(:cost AS BIGINT), amount),
  state = CASE WHEN CAST(:cost AS BIGINT) IS NULL AND amount IS NOT NULL THEN 'lost' ELSE 'settled' END
WHERE id = :reservation;

-- name: release
-- The call was never answered: it costs nothing.
DELETE FROM reservation WHERE id = :reservation AND state = 'open';

-- name: lose
-- The call broke off after the model had begun to answer.
UPDATE reservation SET state = 'lost' WHERE id = :reservation AND state = 'open';

-- name: list_open
-- The reservations of a worker's calls that have not ended.
SELECT id FROM reservation WHERE worker_id = :holder AND state = 'open' ORDER BY id;

-- name: sum_day
-- Of a day's reservations: what is spent for certain, what calls in progress hold, and how many of those are unknown or known.
SELECT
  CAST(coalesce(sum(CASE WHEN running = 0 THEN amount END), 0) AS BIGINT),
  CAST(coalesce(sum(CASE WHEN running = 1 THEN amount END), 0) AS BIGINT),
  CAST(coalesce(sum(running), 0) AS BIGINT),
  CAST(coalesce(sum(CASE WHEN running = 1 AND amount IS NULL THEN 1 END), 0) AS BIGINT)
FROM (
  SELECT amount, CASE WHEN state = 'open' AND EXISTS (
    SELECT 1 FROM worker WHERE worker.id = reservation.worker_id AND worker.ended_at IS NULL
  ) THEN 1 ELSE 0 END AS running
  FROM reservation WHERE day = :day
) AS found;

-- name: sum_sender
-- The same of one user.
SELECT
  CAST(coalesce(sum(CASE WHEN running = 0 THEN amount END), 0) AS BIGINT),
  CAST(coalesce(sum(CASE WHEN running = 1 THEN amount END), 0) AS BIGINT),
  CAST(coalesce(sum(running), 0) AS BIGINT),
  CAST(coalesce(sum(CASE WHEN running = 1 AND amount IS NULL THEN 1 END), 0) AS BIGINT)
FROM (
  SELECT amount, CASE WHEN state = 'open' AND EXISTS (
    SELECT 1 FROM worker WHERE worker.id = reservation.worker_id AND worker.ended_at IS NULL
  ) THEN 1 ELSE 0 END AS running
  FROM reservation WHERE day = :day AND sender = :sender
) AS found;

-- name: sum_tree
-- The same of one session and its sub-agents, on all days.
WITH RECURSIVE tree (id) AS (
  SELECT id FROM session WHERE id = :of
  UNION
  SELECT delegation.child_id FROM delegation JOIN tree ON delegation.parent_id = tree.id
)
SELECT
  CAST(coalesce(sum(CASE WHEN running = 0 THEN amount END), 0) AS BIGINT),
  CAST(coalesce(sum(CASE WHEN running = 1 THEN amount END), 0) AS BIGINT),
  CAST(coalesce(sum(running), 0) AS BIGINT),
  CAST(coalesce(sum(CASE WHEN running = 1 AND amount IS NULL THEN 1 END), 0) AS BIGINT)
FROM (
  SELECT amount, CASE WHEN state = 'open' AND EXISTS (
    SELECT 1 FROM worker WHERE worker.id = reservation.worker_id AND worker.ended_at IS NULL
  ) THEN 1 ELSE 0 END AS running
  FROM reservation WHERE session_id IN (SELECT id FROM tree)
) AS found;

-- name: cost_of_day
SELECT CAST(coalesce(sum(cost), 0) AS BIGINT) FROM usage_day WHERE day = :day;

-- name: cost_of_sender
SELECT CAST(coalesce(sum(cost), 0) AS BIGINT) FROM usage_day WHERE day = :day AND sender = :sender;

-- name: cost_of_tree
-- What one session and its sub-agents have cost, as far as it is summed up.
WITH RECURSIVE tree (id) AS (
  SELECT id FROM session WHERE id = :of
  UNION
  SELECT delegation.child_id FROM delegation JOIN tree ON delegation.parent_id = tree.id
)
SELECT CAST(coalesce(sum(cost), 0) AS BIGINT) FROM usage_session WHERE session_id IN (SELECT id FROM tree);

-- name: get_raise
SELECT amount FROM budget_raise WHERE session_id = :of;

-- name: raise_limit
INSERT INTO budget_raise (session_id, amount) VALUES (:of, :amount)
ON CONFLICT (session_id) DO UPDATE SET amount = budget_raise.amount + excluded.amount;

-- name: list_goals
-- The active goals of a session and of those that delegated to it.
WITH RECURSIVE above (id) AS (
  SELECT id FROM session WHERE id = :of
  UNION
  SELECT delegation.parent_id FROM delegation JOIN above ON delegation.child_id = above.id
)
SELECT session_id, body FROM goal WHERE state = 'active' AND session_id IN (SELECT id FROM above) ORDER BY session_id;
