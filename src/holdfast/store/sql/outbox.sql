-- name: expect
-- Where the reply of a turn is to go.
INSERT INTO address (session_id, turn_id, platform, chat, reply_to, at)
VALUES (:session, :turn, :platform, :chat, :reply_to, :at)
ON CONFLICT (session_id, turn_id, platform, chat) DO NOTHING;

-- name: addresses
SELECT platform, chat, reply_to FROM address WHERE session_id = :session AND turn_id = :turn;

-- name: add
-- Something to deliver, behind all that is to go to the same platform.
INSERT INTO outbox (id, platform, chat, number, kind, session_id, turn_id, body, state, due_at, at)
VALUES (:id, :platform, :chat, :number, :kind, :session, :turn, :body, :state, :at, :at)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: get
SELECT * FROM outbox WHERE id = :id;

-- name: heads
-- The oldest delivery of each chat that is not over: in a chat, one comes after another.
SELECT * FROM outbox AS head
WHERE platform = :platform AND state IN ('waiting', 'sending')
  AND NOT EXISTS (
    SELECT 1 FROM outbox AS earlier
    WHERE earlier.platform = head.platform AND earlier.chat = head.chat AND earlier.number < head.number
      AND earlier.state IN ('waiting', 'sending')
  )
ORDER BY number LIMIT :limit;

-- name: next
-- The oldest delivery of a chat that is not over.
SELECT * FROM outbox WHERE platform = :platform AND chat = :chat AND state IN ('waiting', 'sending')
ORDER BY number LIMIT 1;

-- name: begin
-- Written before something is handed to the platform. No row: another worker is at it, or serves the platform now.
UPDATE outbox SET state = 'sending', worker_id = :worker, attempts = attempts + 1
WHERE id = :id AND (state = 'waiting' OR state = 'sending' AND worker_id = :worker)
  AND EXISTS (SELECT 1 FROM platform WHERE platform.name = outbox.platform AND platform.worker_id = :worker)
RETURNING *;

-- name: doubt
-- Nobody knows whether the part that was being sent has arrived: the worker that was at it is gone, or the platform did not say.
UPDATE outbox SET state = :state, doubts = doubts + 1, unsure = 1, due_at = :due, error = :error
WHERE id = :id AND state = 'sending'
RETURNING *;

-- name: part
-- A part has arrived; the rest is still to come.
UPDATE outbox SET state = 'waiting', part = :part, remote = :remote, attempts = 0, unsure = 0, error = '' WHERE id = :id AND state = 'sending' AND worker_id = :worker
RETURNING *;

-- name: finish
-- All of it has arrived.
UPDATE outbox SET state = 'sent', part = :part, remote = :remote, sent_at = :at, unsure = 0, error = ''
WHERE id = :id AND state = 'sending' AND worker_id = :worker
RETURNING *;

-- name: postpone
-- It has certainly not arrived, and is tried again later.
UPDATE outbox SET state = 'waiting', due_at = :due, error = :error WHERE id = :id AND state = 'sending' RETURNING id;

-- name: fail
-- It will not be taken, or not in time: it stays until somebody replays it.
UPDATE outbox SET state = 'failed', error = :error WHERE id = :id AND state IN ('waiting', 'sending') RETURNING id;

-- name: replay
-- What failed, or may not have arrived, is tried again behind all that waits.
UPDATE outbox SET state = 'waiting', number = :number, attempts = 0, due_at = :at, worker_id = NULL
WHERE id = :id AND state IN ('failed', 'unknown')
RETURNING id;

-- name: trouble
-- What failed or may not have arrived, the newest first.
SELECT * FROM outbox WHERE state IN ('failed', 'unknown') ORDER BY at DESC, id DESC LIMIT :limit;

-- name: of_turn
SELECT * FROM outbox WHERE session_id = :session AND turn_id = :turn ORDER BY number;

-- name: show
-- The message in which a reply was shown while it was made.
UPDATE outbox SET state = 'sent', remote = :remote, sent_at = :at WHERE id = :id AND kind = 'preview' RETURNING id;

-- name: depths
-- How many deliveries of each platform are in each state.
SELECT platform, state, count(*) FROM outbox WHERE state <> 'sent' AND kind <> 'preview'
GROUP BY platform, state ORDER BY platform, state;
