-- name: add
-- Stores a message once. No row: it exists.
INSERT INTO inbox (id, platform, chat, message, number, digest, payload, state, outcome, at)
VALUES (:id, :platform, :chat, :message, :number, :digest, :payload, :state, :outcome, :at)
ON CONFLICT (platform, chat, message) DO NOTHING
RETURNING id;

-- name: count_repeat
-- Counts a redelivery; the first message stays.
UPDATE inbox SET repeats = repeats + 1
WHERE platform = :platform AND chat = :chat AND message = :message
RETURNING id, digest, repeats;

-- name: get
SELECT * FROM inbox WHERE id = :id;

-- name: list_heads
-- The oldest unhandled message of each chat: a chat is handled in order.
SELECT * FROM inbox AS head
WHERE platform = :platform AND state IN ('waiting', 'working')
  AND NOT EXISTS (
    SELECT 1 FROM inbox AS earlier
    WHERE earlier.platform = head.platform AND earlier.chat = head.chat AND earlier.number < head.number
      AND earlier.state IN ('waiting', 'working')
  )
ORDER BY number LIMIT :limit;

-- name: find_next
-- The oldest unhandled message of a chat.
SELECT * FROM inbox WHERE platform = :platform AND chat = :chat AND state IN ('waiting', 'working')
ORDER BY number LIMIT 1;

-- name: begin
-- Counts an attempt before it starts. No row: it was handled, or another worker serves the platform.
UPDATE inbox SET state = 'working', attempts = attempts + 1
WHERE id = :id AND state IN ('waiting', 'working')
  AND EXISTS (SELECT 1 FROM platform WHERE platform.name = inbox.platform AND platform.worker_id = :worker)
RETURNING *;

-- name: put_back
-- The attempt failed for a reason outside the message; it is retried.
UPDATE inbox SET state = 'waiting', attempts = attempts - 1, outcome = :outcome WHERE id = :id AND state = 'working';

-- name: mark_done
-- Marks it as handled, once. Its text is in a log, so the payload is deleted.
UPDATE inbox SET state = 'done', outcome = :outcome, session_id = :session, turn_id = :turn, payload = ''
WHERE id = :id AND state IN ('waiting', 'working')
RETURNING id;

-- name: mark_dead
-- Makes it a dead letter; it keeps its payload until it is replayed.
UPDATE inbox SET state = 'dead', outcome = :outcome WHERE id = :id AND state IN ('waiting', 'working') RETURNING id;

-- name: list_dead
-- Dead letters, newest first.
SELECT * FROM inbox WHERE state = 'dead' AND dismissed_at IS NULL ORDER BY at DESC, id DESC LIMIT :limit;

-- name: replay
-- Queues a dead letter again, after all other messages.
UPDATE inbox SET number = :number, state = 'waiting', attempts = 0, outcome = '', dismissed_at = NULL
WHERE id = :id AND state = 'dead'
RETURNING id;

-- name: dismiss
-- Stops listing a dead letter. It keeps its payload and can be replayed by its id.
UPDATE inbox SET dismissed_at = :at WHERE id = :id AND state = 'dead' AND dismissed_at IS NULL RETURNING id;

-- name: rename
-- Sets the chat and message id of a message that now parses.
UPDATE inbox SET chat = :chat, message = :message, state = 'waiting', attempts = 0
WHERE id = :id AND NOT EXISTS (
  SELECT 1 FROM inbox AS other
  WHERE other.platform = inbox.platform AND other.chat = :chat AND other.message = :message
)
RETURNING id;

-- name: count_by_state
-- How many messages of each platform are in each state.
SELECT platform, state, count(*) FROM inbox
WHERE state <> 'done' AND dismissed_at IS NULL GROUP BY platform, state ORDER BY platform, state;
