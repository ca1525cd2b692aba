-- name: add
INSERT INTO delegation (child_id, parent_id, turn_id, call_id, task_turn, title, delivery, started_at, deadline_at)
VALUES (:session, :parent, :turn, :call, :task_turn, :title, :delivery, :at, :deadline_at);

-- name: get
SELECT child_id, parent_id, turn_id, call_id, task_turn, title, delivery, started_at, deadline_at, stop_reason, ended_at,
  outcome, reason, reply, delivered_at
FROM delegation WHERE child_id = :child;

-- name: get_locked
-- Like `get`, for a transaction that ends the child: it names the parent, so that both sessions are locked.
SELECT child_id, parent_id, turn_id, call_id, task_turn, title, delivery, started_at, deadline_at, stop_reason, ended_at,
  outcome, reason, reply, delivered_at
FROM delegation WHERE child_id = :session AND parent_id = :parent;

-- name: get_by_call
SELECT child_id, parent_id, turn_id, call_id, task_turn, title, delivery, started_at, deadline_at, stop_reason, ended_at,
  outcome, reason, reply, delivered_at
FROM delegation WHERE parent_id = :parent AND turn_id = :turn AND call_id = :call;

-- name: list_by_parent
-- The children of a session, oldest first.
SELECT child_id, parent_id, turn_id, call_id, task_turn, title, delivery, started_at, deadline_at, stop_reason, ended_at,
  outcome, reason, reply, delivered_at
FROM delegation WHERE parent_id = :parent ORDER BY started_at, child_id;

-- name: list_children_of
-- The children of some sessions, oldest first.
SELECT parent_id, child_id FROM delegation
WHERE parent_id IN (
  :id_a, :id_b, :id_c, :id_d, :id_e, :id_f, :id_g, :id_h, :id_i, :id_j,
  :id_k, :id_l, :id_m, :id_n, :id_o, :id_p, :id_q, :id_r, :id_s, :id_t
)
ORDER BY started_at, child_id;

-- name: list_to_stop
-- Running children that were asked to stop, or have exceeded their time limit.
SELECT child_id, parent_id, turn_id, call_id, task_turn, title, delivery, started_at, deadline_at, stop_reason, ended_at,
  outcome, reason, reply, delivered_at
FROM delegation WHERE ended_at IS NULL AND stop_reason <> ''
UNION ALL
SELECT child_id, parent_id, turn_id, call_id, task_turn, title, delivery, started_at, deadline_at, stop_reason, ended_at,
  outcome, reason, reply, delivered_at
FROM delegation WHERE ended_at IS NULL AND stop_reason = '' AND deadline_at <= :at
ORDER BY deadline_at;

-- name: get_next_deadline
SELECT min(deadline_at) FROM delegation WHERE ended_at IS NULL;

-- name: count_running
SELECT count(*) FROM delegation WHERE parent_id = :parent AND ended_at IS NULL;

-- name: list_running_modes
-- The running children of a session with their permission modes.
SELECT delegation.child_id, session.mode
FROM delegation JOIN session ON session.id = delegation.child_id
WHERE delegation.parent_id = :parent AND delegation.ended_at IS NULL
ORDER BY delegation.child_id;

-- name: request_stop
-- Asks a child to stop; the first reason stays.
UPDATE delegation SET stop_reason = :reason
WHERE child_id = :session AND ended_at IS NULL AND stop_reason = '';

-- name: request_stop_all
-- Asks all running children of a session to stop; the first reason stays.
UPDATE delegation SET stop_reason = :reason
WHERE parent_id = :parent AND ended_at IS NULL AND stop_reason = '';

-- name: set_delivery
UPDATE delegation SET delivery = :delivery WHERE child_id = :child;

-- name: end
-- Records the end of a child, once.
UPDATE delegation SET ended_at = :at, outcome = :outcome, reason = :reason, reply = :reply
WHERE child_id = :session AND ended_at IS NULL
RETURNING child_id;

-- name: deliver
-- Records that the parent has got the completion. The text is in its log from then on.
UPDATE delegation SET delivered_at = :at, reply = '' WHERE child_id = :child AND delivered_at IS NULL;

-- name: get_parent
-- When the parent ended and when it was moved to the trash. No row: it was deleted.
SELECT ended_at, trashed_at FROM session WHERE id = :parent;

-- name: find_last_reply
-- The newest reply of the child's model.
SELECT body FROM event WHERE session_id = :session AND kind = 'model_said' ORDER BY seq DESC LIMIT 1;

-- name: find_trash_reason
-- The newest move of a session to the trash.
SELECT body FROM event WHERE session_id = :session AND kind = 'trashed' ORDER BY seq DESC LIMIT 1;

-- name: list_unclaimed_children
-- Running children without a worker, whose parent the worker :holder runs or has open; or nobody, if :takes_left is 1.
SELECT delegation.child_id
FROM delegation
JOIN session AS child ON child.id = delegation.child_id
JOIN session AS parent ON parent.id = delegation.parent_id
WHERE delegation.ended_at IS NULL AND child.lease_worker IS NULL AND child.trashed_at IS NULL
  AND (parent.lease_worker = :holder
    OR (parent.lease_worker IS NULL AND parent.owner_worker = :holder)
    OR (parent.lease_worker IS NULL AND parent.owner_worker IS NULL AND :takes_left = 1))
ORDER BY delegation.deadline_at, delegation.child_id;

-- name: list_unclaimed_parents
-- Sessions with a completion in their queue and no worker, unless another worker than :holder has them open.
SELECT id FROM session
WHERE id IN (SELECT session_id FROM input WHERE body <> '')
  AND lease_worker IS NULL AND open_turn IS NULL AND trashed_at IS NULL
  AND (owner_worker IS NULL OR owner_worker = :holder)
  AND EXISTS (SELECT 1 FROM delegation WHERE delegation.parent_id = session.id)
ORDER BY id;

-- name: list_unclaimed_goals
-- The same of sessions that :holder has open and that work towards a goal.
SELECT id FROM session
WHERE id IN (SELECT session_id FROM input WHERE body <> '')
  AND lease_worker IS NULL AND open_turn IS NULL AND trashed_at IS NULL AND owner_worker = :holder
  AND EXISTS (SELECT 1 FROM delegation WHERE delegation.parent_id = session.id)
  AND EXISTS (SELECT 1 FROM goal WHERE goal.session_id = session.id AND goal.state = 'active')
ORDER BY id;
