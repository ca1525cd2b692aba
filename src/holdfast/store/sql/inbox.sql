-- name: add
-- Keeps a message of a platform, once. No row: it came before.
INSERT INTO inbox (id, platform, chat, message, number, digest, payload, state, outcome, at)
VALUES (:id, :platform, :chat, :message, :number, :digest, :payload, :state, :outcome, :at)
ON CONFLICT (platform, chat, message) DO NOTHING
RETURNING id;

-- name: repeat
-- The platform has delivered a message again; the first one stands.
UPDATE inbox SET repeats = repeats + 1
WHERE platform = :platform AND chat = :chat AND message = :message
RETURNING id, digest, repeats;

-- name: get
SELECT * FROM inbox WHERE id = :id;

-- name: heads
-- The oldest message of each chat that nobody has dealt with: in a chat, one comes after another.
SELECT * FROM inbox AS head
WHERE platform = :platform AND state IN ('waiting', 'working')
  AND NOT EXISTS (
    SELECT 1 FROM inbox AS earlier
    WHERE earlier.platform = head.platform AND earlier.chat = head.chat AND earlier.number < head.number
      AND earlier.state IN ('waiting', 'working')
  )
ORDER BY number LIMIT :limit;

-- name: next
-- The oldest message of a chat that nobody has dealt with.
SELECT * FROM inbox WHERE platform = :platform AND chat = :chat AND state IN ('waiting', 'working')
ORDER BY number LIMIT 1;

-- name: begin
-- Counts an attempt before it is made. No row: it was dealt with, or another worker serves the platform now.
UPDATE inbox SET state = 'working', attempts = attempts + 1
WHERE id = :id AND state IN ('waiting', 'working')
  AND EXISTS (SELECT 1 FROM platform WHERE platform.name = inbox.platform AND platform.worker_id = :worker)
RETURNING *;

-- name: put_back
-- The attempt was no fault of the message: it will be made again.
UPDATE inbox SET state = 'waiting', attempts = attempts - 1, outcome = :outcome WHERE id = :id AND state = 'working';

-- name: settle
-- It has been dealt with, once. The words are in a log now, so that the payload need not be kept.
UPDATE inbox SET state = 'done', outcome = :outcome, session_id = :session, turn_id = :turn, payload = ''
WHERE id = :id AND state IN ('waiting', 'working')
RETURNING id;

-- name: bury
-- It cannot be dealt with: it stays, as it came, until somebody replays it.
UPDATE inbox SET state = 'dead', outcome = :outcome WHERE id = :id AND state IN ('waiting', 'working') RETURNING id;

-- name: dead
-- What could not be understood or dealt with, the newest first.
SELECT * FROM inbox WHERE state = 'dead' ORDER BY at DESC, id DESC LIMIT :limit;

-- name: replay
-- A dead message is tried again, behind all that has come.
UPDATE inbox SET number = :number, state = 'waiting', attempts = 0, outcome = '' WHERE id = :id AND state = 'dead'
RETURNING id;

-- name: rename
-- A message is understood otherwise than when it came.
UPDATE inbox SET chat = :chat, message = :message, state = 'waiting', attempts = 0
WHERE id = :id AND NOT EXISTS (
  SELECT 1 FROM inbox AS other
  WHERE other.platform = inbox.platform AND other.chat = :chat AND other.message = :message
)
RETURNING id;

-- name: depths
-- How many messages of each platform are in each state.
SELECT platform, state, count(*) FROM inbox WHERE state <> 'done' GROUP BY platform, state ORDER BY platform, state;
