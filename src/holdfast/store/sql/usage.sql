-- name: get_position
-- Up to which position the log is summed up. Names the key under which everything about budgets is serialized.
SELECT position FROM usage_state WHERE key = :key;

-- name: set_position
UPDATE usage_state SET position = :position WHERE key = :key;

-- name: list_events
-- Events with usage, and ends of turns, after a position.
SELECT position, session_id, seq, kind, at, body FROM event
WHERE position > :after AND position <= :upto
  AND kind IN ('model_said', 'model_called', 'compacted', 'compaction_failed', 'turn_ended')
ORDER BY position LIMIT :limit;

-- name: list_events_of
-- The same of one session.
SELECT position, session_id, seq, kind, at, body FROM event
WHERE session_id = :of AND position <= :upto
  AND kind IN ('model_said', 'model_called', 'compacted', 'compaction_failed', 'turn_ended')
ORDER BY seq;

-- name: find_origin
-- The last event of the part of a log that was copied from elsewhere. Messages that a client sends with a request, or adds to a
-- conversation, are also recorded as imported, but the turns before them were played here and count.
SELECT max(seq) FROM event WHERE session_id = :of AND kind IN ('forked', 'imported')
  AND NOT (kind = 'imported' AND (body LIKE '{"format":"messages of a request"%' OR body LIKE '{"format":"items of a conversation"%'));

-- name: find_sender
-- The newest message of a person from one event to another.
SELECT body FROM event
WHERE session_id = :of AND seq >= :after AND seq < :before AND kind = 'user_said'
ORDER BY seq DESC LIMIT 1;

-- name: find_reply
-- The newest reply of the model before an event.
SELECT body FROM event
WHERE session_id = :of AND seq < :before AND kind = 'model_said'
ORDER BY seq DESC LIMIT 1;

-- name: get_source
SELECT source FROM session WHERE id = :of;

-- name: add_to_day
-- Adds to the sum of a day.
INSERT INTO usage_day (day, model, source, sender, turns, calls, unpriced, tokens_in, tokens_out, cache_read, cache_write, reasoning, cost, interrupted)
VALUES (:day, :model, :source, :sender, :turns, :calls, :unpriced, :tokens_in, :tokens_out, :cache_read, :cache_write, :reasoning, :cost, :interrupted)
ON CONFLICT (day, model, source, sender) DO UPDATE SET
  turns = usage_day.turns + excluded.turns, calls = usage_day.calls + excluded.calls,
  unpriced = usage_day.unpriced + excluded.unpriced,
  tokens_in = usage_day.tokens_in + excluded.tokens_in, tokens_out = usage_day.tokens_out + excluded.tokens_out,
  cache_read = usage_day.cache_read + excluded.cache_read, cache_write = usage_day.cache_write + excluded.cache_write,
  reasoning = usage_day.reasoning + excluded.reasoning, cost = usage_day.cost + excluded.cost,
  interrupted = usage_day.interrupted + excluded.interrupted;

-- name: add_to_pruned
-- Adds to what deleted sessions have used.
INSERT INTO usage_pruned (day, model, source, sender, turns, calls, unpriced, tokens_in, tokens_out, cache_read, cache_write, reasoning, cost, interrupted)
VALUES (:day, :model, :source, :sender, :turns, :calls, :unpriced, :tokens_in, :tokens_out, :cache_read, :cache_write, :reasoning, :cost, :interrupted)
ON CONFLICT (day, model, source, sender) DO UPDATE SET
  turns = usage_pruned.turns + excluded.turns, calls = usage_pruned.calls + excluded.calls,
  unpriced = usage_pruned.unpriced + excluded.unpriced,
  tokens_in = usage_pruned.tokens_in + excluded.tokens_in, tokens_out = usage_pruned.tokens_out + excluded.tokens_out,
  cache_read = usage_pruned.cache_read + excluded.cache_read, cache_write = usage_pruned.cache_write + excluded.cache_write,
  reasoning = usage_pruned.reasoning + excluded.reasoning, cost = usage_pruned.cost + excluded.cost,
  interrupted = usage_pruned.interrupted + excluded.interrupted;

-- name: add_to_session
-- Adds to the sum of a session.
INSERT INTO usage_session (session_id, model, turns, calls, unpriced, tokens_in, tokens_out, cache_read, cache_write, reasoning, cost, interrupted)
VALUES (:of, :model, :turns, :calls, :unpriced, :tokens_in, :tokens_out, :cache_read, :cache_write, :reasoning, :cost, :interrupted)
ON CONFLICT (session_id, model) DO UPDATE SET
  turns = usage_session.turns + excluded.turns, calls = usage_session.calls + excluded.calls,
  unpriced = usage_session.unpriced + excluded.unpriced,
  tokens_in = usage_session.tokens_in + excluded.tokens_in, tokens_out = usage_session.tokens_out + excluded.tokens_out,
  cache_read = usage_session.cache_read + excluded.cache_read, cache_write = usage_session.cache_write + excluded.cache_write,
  reasoning = usage_session.reasoning + excluded.reasoning, cost = usage_session.cost + excluded.cost,
  interrupted = usage_session.interrupted + excluded.interrupted;

-- name: list_days
-- The sums of a range of days.
SELECT day, model, source, sender, turns, calls, unpriced, tokens_in, tokens_out, cache_read, cache_write, reasoning, cost, interrupted
FROM usage_day WHERE day >= :first AND day <= :last
ORDER BY day, model, source, sender;

-- name: list_by_day
-- The sums of a range of days, by day.
SELECT day, '', '', '', CAST(sum(turns) AS BIGINT), CAST(sum(calls) AS BIGINT), CAST(sum(unpriced) AS BIGINT), CAST(sum(tokens_in) AS BIGINT), CAST(sum(tokens_out) AS BIGINT), CAST(sum(cache_read) AS BIGINT), CAST(sum(cache_write) AS BIGINT), CAST(sum(reasoning) AS BIGINT), CAST(sum(cost) AS BIGINT), CAST(sum(interrupted) AS BIGINT)
FROM usage_day WHERE day >= :first AND day <= :last
GROUP BY day ORDER BY day;

-- name: list_by_model
-- The sums of a range of days, by model.
SELECT '', model, '', '', CAST(sum(turns) AS BIGINT), CAST(sum(calls) AS BIGINT), CAST(sum(unpriced) AS BIGINT), CAST(sum(tokens_in) AS BIGINT), CAST(sum(tokens_out) AS BIGINT), CAST(sum(cache_read) AS BIGINT), CAST(sum(cache_write) AS BIGINT), CAST(sum(reasoning) AS BIGINT), CAST(sum(cost) AS BIGINT), CAST(sum(interrupted) AS BIGINT)
FROM usage_day WHERE day >= :first AND day <= :last
GROUP BY model ORDER BY model;

-- name: list_by_source
-- The sums of a range of days, by source.
SELECT '', '', source, '', CAST(sum(turns) AS BIGINT), CAST(sum(calls) AS BIGINT), CAST(sum(unpriced) AS BIGINT), CAST(sum(tokens_in) AS BIGINT), CAST(sum(tokens_out) AS BIGINT), CAST(sum(cache_read) AS BIGINT), CAST(sum(cache_write) AS BIGINT), CAST(sum(reasoning) AS BIGINT), CAST(sum(cost) AS BIGINT), CAST(sum(interrupted) AS BIGINT)
FROM usage_day WHERE day >= :first AND day <= :last
GROUP BY source ORDER BY source;

-- name: list_by_sender
-- The sums of a range of days, by user.
SELECT '', '', '', sender, CAST(sum(turns) AS BIGINT), CAST(sum(calls) AS BIGINT), CAST(sum(unpriced) AS BIGINT), CAST(sum(tokens_in) AS BIGINT), CAST(sum(tokens_out) AS BIGINT), CAST(sum(cache_read) AS BIGINT), CAST(sum(cache_write) AS BIGINT), CAST(sum(reasoning) AS BIGINT), CAST(sum(cost) AS BIGINT), CAST(sum(interrupted) AS BIGINT)
FROM usage_day WHERE day >= :first AND day <= :last
GROUP BY sender ORDER BY sender;

-- name: list_pruned
SELECT day, model, source, sender, turns, calls, unpriced, tokens_in, tokens_out, cache_read, cache_write, reasoning, cost, interrupted
FROM usage_pruned ORDER BY day, model, source, sender;

-- name: list_of_session
-- The sums of one session, by model.
SELECT '', model, '', '', turns, calls, unpriced, tokens_in, tokens_out, cache_read, cache_write, reasoning, cost, interrupted
FROM usage_session WHERE session_id = :of ORDER BY model;

-- name: sum_of_sub_agents
-- The sum of all sessions below one.
WITH RECURSIVE tree (id) AS (
  SELECT child_id FROM delegation WHERE parent_id = :of
  UNION
  SELECT delegation.child_id FROM delegation JOIN tree ON delegation.parent_id = tree.id
)
SELECT '', '', '', '', CAST(coalesce(sum(turns), 0) AS BIGINT), CAST(coalesce(sum(calls), 0) AS BIGINT), CAST(coalesce(sum(unpriced), 0) AS BIGINT), CAST(coalesce(sum(tokens_in), 0) AS BIGINT), CAST(coalesce(sum(tokens_out), 0) AS BIGINT), CAST(coalesce(sum(cache_read), 0) AS BIGINT), CAST(coalesce(sum(cache_write), 0) AS BIGINT), CAST(coalesce(sum(reasoning), 0) AS BIGINT), CAST(coalesce(sum(cost), 0) AS BIGINT), CAST(coalesce(sum(interrupted), 0) AS BIGINT)
FROM usage_session WHERE session_id IN (SELECT id FROM tree);

-- name: get_price_record
-- Calls of a model since a day: how many had a known cost, how many had none although they were complete, and the cost of the former.
SELECT CAST(coalesce(sum(calls - unpriced), 0) AS BIGINT), CAST(coalesce(sum(unpriced - interrupted), 0) AS BIGINT),
  CAST(coalesce(sum(cost), 0) AS BIGINT)
FROM usage_day WHERE day >= :first AND model = :model;

-- name: delete_settled
-- Deletes a reservation whose call is now in the sums.
DELETE FROM reservation WHERE id = :reservation AND state = 'settled';

-- name: clear_days
DELETE FROM usage_day;

-- name: clear_sessions
DELETE FROM usage_session;
