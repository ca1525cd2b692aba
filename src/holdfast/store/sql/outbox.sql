-- name: add_reply_address
-- Adds an address for the reply of a turn.
INSERT INTO address (session_id, turn_id, platform, chat, reply_to, at, person)
VALUES (:session, :turn, :platform, :chat, :reply_to, :at, :person)
ON CONFLICT (session_id, turn_id, platform, chat) DO NOTHING;

-- name: copy_reply_addresses
-- Gives a turn the addresses of another one.
INSERT INTO address (session_id, turn_id, platform, chat, reply_to, at, person)
SELECT session_id, :to_turn, platform, chat, reply_to, at, person FROM address
WHERE session_id = :session AND turn_id = :from_turn;

-- name: list_reply_addresses
SELECT platform, chat, reply_to FROM address WHERE session_id = :session AND turn_id = :turn;

-- name: get_requester
-- Who requested a turn in a chat.
SELECT person FROM address
WHERE session_id = :session AND turn_id = :turn AND platform = :platform AND chat = :chat AND person <> '';

-- name: add
-- Queues a delivery after all others of the platform.
INSERT INTO outbox (id, platform, chat, number, kind, session_id, turn_id, body, state, due_at, at)
VALUES (:id, :platform, :chat, :number, :kind, :session, :turn, :body, :state, :at, :at)
ON CONFLICT (id) DO NOTHING
RETURNING id;

-- name: get
SELECT * FROM outbox WHERE id = :id;

-- name: list_heads
-- The oldest unfinished delivery of each chat: a chat is served in order.
SELECT * FROM outbox AS head
WHERE platform = :platform AND state IN ('waiting', 'sending')
  AND NOT EXISTS (
    SELECT 1 FROM outbox AS earlier
    WHERE earlier.platform = head.platform AND earlier.chat = head.chat AND earlier.number < head.number
      AND earlier.state IN ('waiting', 'sending')
  )
ORDER BY number LIMIT :limit;

-- name: find_next
-- The oldest unfinished delivery of a chat.
SELECT * FROM outbox WHERE platform = :platform AND chat = :chat AND state IN ('waiting', 'sending')
ORDER BY number LIMIT 1;

-- name: begin
-- Recorded before the message is sent. No row: another worker sends it or serves the platform.
UPDATE outbox SET state = 'sending', worker_id = :worker, attempts = attempts + 1
WHERE id = :id AND (state = 'waiting' OR state = 'sending' AND worker_id = :worker)
  AND EXISTS (SELECT 1 FROM platform WHERE platform.name = outbox.platform AND platform.worker_id = :worker)
RETURNING *;

-- name: mark_unknown
-- The outcome of the part is unknown: the sending worker died, or the platform did not answer.
UPDATE outbox SET state = :state, doubts = doubts + 1, unsure = 1, due_at = :due, error = :error
WHERE id = :id AND state = 'sending'
RETURNING *;

-- name: mark_part_sent
-- A part was delivered; more follow.
UPDATE outbox SET state = 'waiting', part = :part, remote = :remote, attempts = 0, unsure = 0, error = '' WHERE id = :id AND state = 'sending' AND worker_id = :worker
RETURNING *;

-- name: mark_sent
-- All parts were delivered.
UPDATE outbox SET state = 'sent', part = :part, remote = :remote, sent_at = :at, unsure = 0, error = ''
WHERE id = :id AND state = 'sending' AND worker_id = :worker
RETURNING *;

-- name: postpone
-- It was certainly not delivered; it is retried later.
UPDATE outbox SET state = 'waiting', due_at = :due, error = :error WHERE id = :id AND state = 'sending' RETURNING id;

-- name: fail
-- It was rejected or timed out; it stays until it is replayed.
UPDATE outbox SET state = 'failed', error = :error WHERE id = :id AND state IN ('waiting', 'sending') RETURNING id;

-- name: replay
-- Queues a failed or unknown delivery again, after all others.
UPDATE outbox SET state = 'waiting', number = :number, attempts = 0, due_at = :at, worker_id = NULL, dismissed_at = NULL
WHERE id = :id AND state IN ('failed', 'unknown')
RETURNING id;

-- name: dismiss
-- Stops listing a failed or unknown delivery. It can be replayed by its id.
UPDATE outbox SET dismissed_at = :at WHERE id = :id AND state IN ('failed', 'unknown') AND dismissed_at IS NULL RETURNING id;

-- name: list_undelivered
-- Failed and unknown deliveries, newest first.
SELECT * FROM outbox WHERE state IN ('failed', 'unknown') AND dismissed_at IS NULL ORDER BY at DESC, id DESC LIMIT :limit;

-- name: list_delayed_chats
-- Chats whose next delivery is delayed by the platform or a failure, with the number of waiting messages.
SELECT head.platform, head.chat, head.due_at, head.error, (
  SELECT count(*) FROM outbox AS one
  WHERE one.platform = head.platform AND one.chat = head.chat AND one.state IN ('waiting', 'sending')
)
FROM outbox AS head
WHERE head.state IN ('waiting', 'sending') AND head.state = 'waiting' AND head.due_at > :now AND head.attempts > 0
ORDER BY head.due_at, head.platform, head.chat LIMIT :limit;

-- name: list_by_turn
SELECT * FROM outbox WHERE session_id = :session AND turn_id = :turn ORDER BY number;

-- name: record_preview
-- Records the platform message that shows the live preview of a reply.
UPDATE outbox SET state = 'sent', remote = :remote, sent_at = :at WHERE id = :id AND kind = 'preview' RETURNING id;

-- name: count_by_state
-- How many deliveries of each platform are in each state.
SELECT platform, state, count(*) FROM outbox WHERE state <> 'sent' AND kind <> 'preview' AND dismissed_at IS NULL
GROUP BY platform, state ORDER BY platform, state;
