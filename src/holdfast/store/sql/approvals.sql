-- name: ask
-- Adds a question; an existing one stays.
INSERT INTO approval (session_id, turn_id, call_id, question, asked_at, id, proposal)
VALUES (:session, :turn, :call, :question, :at, :id, :proposal)
ON CONFLICT (session_id, turn_id, call_id) DO NOTHING
RETURNING call_id;

-- name: answer
-- Answers a question, once. No row: there is none, or it was answered before.
UPDATE approval SET allowed = :allowed, answered_by = :by, answered_at = :at
WHERE session_id = :session AND turn_id = :turn AND call_id = :call AND allowed IS NULL
RETURNING call_id;

-- name: get
SELECT session_id, turn_id, call_id, question, asked_at, allowed, answered_by, id, proposal FROM approval
WHERE session_id = :session AND turn_id = :turn AND call_id = :call;

-- name: list_unanswered
-- Open questions of a session.
SELECT session_id, turn_id, call_id, question, asked_at, allowed, answered_by, id, proposal FROM approval
WHERE session_id = :session AND allowed IS NULL ORDER BY asked_at, call_id;

-- name: list_unanswered_in_tree
-- Open questions of a session and of its running descendants.
WITH RECURSIVE tree (id) AS (
  SELECT id FROM session WHERE id = :root
  UNION
  SELECT delegation.child_id FROM delegation JOIN tree ON delegation.parent_id = tree.id
  WHERE delegation.ended_at IS NULL
)
SELECT session_id, turn_id, call_id, question, asked_at, allowed, answered_by, id, proposal FROM approval
WHERE session_id IN (SELECT id FROM tree) AND allowed IS NULL ORDER BY asked_at, session_id, call_id;

-- name: withdraw
-- Closes the open questions of a turn that has ended.
UPDATE approval SET allowed = 0, answered_by = 'the end of the turn', answered_at = :at
WHERE session_id = :session AND allowed IS NULL;

-- name: withdraw_call
-- Closes the open questions that a running call asked; their call ids are a range.
UPDATE approval SET allowed = 0, answered_by = 'the end of the call', answered_at = :at
WHERE session_id = :session AND turn_id = :turn AND call_id >= :first AND call_id < :after AND allowed IS NULL;

-- name: list_answers
-- The newest answers in a session's log; a turn never has more open questions at once.
SELECT body FROM event WHERE session_id = :session AND kind = 'approval_answered' ORDER BY seq DESC LIMIT 50;

-- name: list_all_unanswered
-- Open questions of all sessions, oldest first.
SELECT session_id, turn_id, call_id, question, asked_at, allowed, answered_by, id, proposal FROM approval
WHERE allowed IS NULL ORDER BY asked_at, session_id, call_id LIMIT :limit;

-- name: by_id
-- A question by its id.
SELECT session_id, turn_id, call_id, question, asked_at, allowed, answered_by, id, proposal FROM approval WHERE id = :id;

-- name: by_id_prefix
-- The first few questions whose id has a prefix; :after is greater than all of them.
SELECT id FROM approval WHERE id >= :prefix AND id < :after ORDER BY id LIMIT 5;

-- name: replace
-- Replaces an open question whose proposal has changed. No row: it was answered.
UPDATE approval SET question = :question, proposal = :proposal, id = :id, asked_at = :at
WHERE session_id = :session AND turn_id = :turn AND call_id = :call AND allowed IS NULL
RETURNING call_id;

-- name: count_unanswered
SELECT count(*) FROM approval WHERE allowed IS NULL;

-- name: list_by_turn
-- All questions of a turn, answered or not.
SELECT session_id, turn_id, call_id, question, asked_at, allowed, answered_by, id, proposal FROM approval
WHERE session_id = :session AND turn_id = :turn ORDER BY asked_at, call_id;
