-- The gateway: what platforms sent, what is to be delivered to them, who may talk, and schedules.

-- A platform as it is connected: by which worker, since when, how far it was read; and the numbers given out so far.
CREATE TABLE platform (
  name TEXT NOT NULL PRIMARY KEY,
  worker_id TEXT REFERENCES worker (id),
  state TEXT NOT NULL CHECK (state IN ('off', 'connecting', 'connected', 'down')),
  since INTEGER NOT NULL,
  error TEXT NOT NULL DEFAULT '',
  error_at INTEGER,
  received INTEGER NOT NULL DEFAULT 0,
  queued INTEGER NOT NULL DEFAULT 0,
  position TEXT NOT NULL DEFAULT ''
) STRICT, WITHOUT ROWID;

-- Messages of platforms, each once and numbered as they came. The payload stays until the message was dealt with.
CREATE TABLE inbox (
  id TEXT NOT NULL PRIMARY KEY,
  platform TEXT NOT NULL,
  chat TEXT NOT NULL,
  message TEXT NOT NULL,
  number INTEGER NOT NULL,
  digest TEXT NOT NULL,
  payload TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('waiting', 'working', 'done', 'dead')),
  attempts INTEGER NOT NULL DEFAULT 0,
  repeats INTEGER NOT NULL DEFAULT 0,
  outcome TEXT NOT NULL DEFAULT '',
  session_id TEXT,
  turn_id TEXT,
  at INTEGER NOT NULL,
  UNIQUE (platform, chat, message)
) STRICT, WITHOUT ROWID;

CREATE INDEX inbox_open ON inbox (platform, chat, number) WHERE state IN ('waiting', 'working');
CREATE INDEX inbox_dead ON inbox (at, id) WHERE state = 'dead';
CREATE INDEX inbox_undone ON inbox (platform, state) WHERE state <> 'done';

-- Where the reply of a turn is to go.
CREATE TABLE address (
  session_id TEXT NOT NULL REFERENCES session (id),
  turn_id TEXT NOT NULL,
  platform TEXT NOT NULL,
  chat TEXT NOT NULL,
  reply_to TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (session_id, turn_id, platform, chat)
) STRICT, WITHOUT ROWID;

-- What is to be delivered, numbered as it was written. Written before it is sent, and with what it tells of.
CREATE TABLE outbox (
  id TEXT NOT NULL PRIMARY KEY,
  platform TEXT NOT NULL,
  chat TEXT NOT NULL,
  number INTEGER NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('reply', 'notice', 'question', 'preview')),
  session_id TEXT REFERENCES session (id),
  turn_id TEXT,
  body TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('waiting', 'sending', 'sent', 'unknown', 'failed')),
  part INTEGER NOT NULL DEFAULT 0,
  attempts INTEGER NOT NULL DEFAULT 0,
  doubts INTEGER NOT NULL DEFAULT 0,
  unsure INTEGER NOT NULL DEFAULT 0,
  due_at INTEGER NOT NULL,
  error TEXT NOT NULL DEFAULT '',
  remote TEXT NOT NULL DEFAULT '[]',
  worker_id TEXT REFERENCES worker (id),
  at INTEGER NOT NULL,
  sent_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX outbox_open ON outbox (platform, chat, number) WHERE state IN ('waiting', 'sending');
CREATE INDEX outbox_trouble ON outbox (at, id) WHERE state IN ('failed', 'unknown');
CREATE INDEX outbox_undone ON outbox (platform, state) WHERE state <> 'sent';
CREATE INDEX outbox_turn ON outbox (session_id, turn_id) WHERE session_id IS NOT NULL;

-- People of platforms: strangers who knocked, with the code that lets them in, and those who may talk.
CREATE TABLE person (
  platform TEXT NOT NULL,
  person TEXT NOT NULL,
  name TEXT NOT NULL,
  code TEXT NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('asked', 'allowed')),
  at INTEGER NOT NULL,
  PRIMARY KEY (platform, person)
) STRICT, WITHOUT ROWID;

CREATE INDEX person_code ON person (code) WHERE state = 'asked';

-- What a chat has chosen for itself.
CREATE TABLE seat (
  channel TEXT NOT NULL PRIMARY KEY,
  busy TEXT NOT NULL CHECK (busy IN ('queue', 'steer', 'interrupt'))
) STRICT, WITHOUT ROWID;

-- Prompts that are said at set times. A removed one stays, so that nothing brings it back.
CREATE TABLE schedule (
  id TEXT NOT NULL PRIMARY KEY,
  cron TEXT NOT NULL,
  timezone TEXT NOT NULL,
  prompt TEXT NOT NULL,
  deliver TEXT,
  model TEXT,
  missed TEXT NOT NULL CHECK (missed IN ('run', 'skip')),
  next_at INTEGER NOT NULL,
  created_at INTEGER NOT NULL,
  removed_at INTEGER
) STRICT, WITHOUT ROWID;

CREATE INDEX schedule_due ON schedule (next_at, id) WHERE removed_at IS NULL;

-- One row for each time a schedule was due, and what became of it.
CREATE TABLE slot (
  schedule_id TEXT NOT NULL REFERENCES schedule (id),
  due_at INTEGER NOT NULL,
  state TEXT NOT NULL CHECK (state IN ('running', 'done', 'failed', 'missed', 'skipped')),
  reason TEXT NOT NULL,
  session_id TEXT,
  turn_id TEXT,
  began_at INTEGER NOT NULL,
  ended_at INTEGER,
  PRIMARY KEY (schedule_id, due_at),
  CHECK ((state = 'running') = (ended_at IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX slot_running ON slot (session_id, turn_id) WHERE state = 'running';
CREATE INDEX slot_busy ON slot (schedule_id, state);
