-- name: ask
-- Puts a question; one that was put before stands.
INSERT INTO approval (session_id, turn_id, call_id, question, asked_at)
VALUES (:session, :turn, :call, :question, :at)
ON CONFLICT (session_id, turn_id, call_id) DO NOTHING
RETURNING call_id;

-- name: answer
-- Answers a question, once. No row: there is none, or it was answered before.
UPDATE approval SET allowed = :allowed, answered_by = :by, answered_at = :at
WHERE session_id = :session AND turn_id = :turn AND call_id = :call AND allowed IS NULL
RETURNING call_id;

-- name: get
SELECT session_id, turn_id, call_id, question, asked_at, allowed, answered_by FROM approval
WHERE session_id = :session AND turn_id = :turn AND call_id = :call;

-- name: open
-- Questions of a session that nobody has answered yet.
SELECT session_id, turn_id, call_id, question, asked_at, allowed, answered_by FROM approval
WHERE session_id = :session AND allowed IS NULL ORDER BY asked_at, call_id;

-- name: withdraw
-- Closes the questions of a turn that has ended: nobody waits for the answer any more.
UPDATE approval SET allowed = 0, answered_by = 'the end of the turn', answered_at = :at
WHERE session_id = :session AND allowed IS NULL;

-- name: answers
-- The newest answers of a session as they stand in its log: a turn has never more of them open at once.
SELECT body FROM event WHERE session_id = :session AND kind = 'approval_answered' ORDER BY seq DESC LIMIT 50;

-- name: every_open
-- Questions of all sessions that nobody has answered yet, the oldest first.
SELECT session_id, turn_id, call_id, question, asked_at, allowed, answered_by FROM approval
WHERE allowed IS NULL ORDER BY asked_at, session_id, call_id LIMIT :limit;
