-- The current schema, for reference: the migrations beside this file create a store, and a test compares the two.

CREATE TABLE migration (
  number INTEGER NOT NULL PRIMARY KEY,
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  release TEXT NOT NULL
) STRICT;

CREATE TABLE meta (
  key TEXT NOT NULL PRIMARY KEY,
  value TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE worker (
  id TEXT NOT NULL PRIMARY KEY,
  kind TEXT NOT NULL,
  host TEXT NOT NULL,
  boot TEXT NOT NULL,
  pid INTEGER NOT NULL,
  process_started TEXT NOT NULL,
  version TEXT NOT NULL,
  started_at INTEGER NOT NULL,
  beat INTEGER NOT NULL DEFAULT 0,
  beat_at INTEGER NOT NULL,
  stalled_since INTEGER,
  ended_at INTEGER,
  end_reason TEXT,
  cleared_at INTEGER,
  leaving_at INTEGER,
  tasks TEXT NOT NULL DEFAULT '[]',
  CHECK ((ended_at IS NULL) = (end_reason IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX worker_alive ON worker (id) WHERE ended_at IS NULL;
CREATE INDEX worker_uncleared ON worker (id) WHERE ended_at IS NOT NULL AND cleared_at IS NULL;

CREATE TABLE session (
  id TEXT NOT NULL PRIMARY KEY,
  seq INTEGER NOT NULL CHECK (seq >= 0),
  hash TEXT NOT NULL,
  lease_worker TEXT REFERENCES worker (id),
  lease_token INTEGER NOT NULL DEFAULT 0,
  title TEXT,
  source TEXT NOT NULL,
  channel TEXT,
  model TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  updated_at INTEGER NOT NULL,
  ended_at INTEGER,
  end_reason TEXT,
  epoch INTEGER NOT NULL,
  message_count INTEGER NOT NULL,
  turn_count INTEGER NOT NULL,
  tokens_in INTEGER NOT NULL,
  tokens_out INTEGER NOT NULL,
  parent_id TEXT,
  side_of TEXT,
  preview TEXT NOT NULL,
  pinned INTEGER NOT NULL,
  trashed_at INTEGER,
  open_turn TEXT,
  quarantined TEXT,
  owner_worker TEXT REFERENCES worker (id),
  active_at INTEGER NOT NULL DEFAULT 0,
  asking INTEGER NOT NULL DEFAULT 0,
  mode TEXT NOT NULL DEFAULT 'edits',
  goal TEXT NOT NULL DEFAULT '',
  CHECK ((ended_at IS NULL) = (end_reason IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX session_activity ON session (updated_at, id);
CREATE INDEX session_title ON session (title) WHERE title IS NOT NULL;
CREATE INDEX session_lease ON session (lease_worker) WHERE lease_worker IS NOT NULL;
CREATE INDEX session_unfinished ON session (open_turn) WHERE open_turn IS NOT NULL;
CREATE INDEX session_owner ON session (owner_worker) WHERE owner_worker IS NOT NULL;
CREATE INDEX session_orphan ON session (id)
WHERE open_turn IS NOT NULL AND lease_worker IS NULL AND ended_at IS NULL AND quarantined IS NULL;
CREATE INDEX session_idle ON session (updated_at) WHERE source = 'api' AND ended_at IS NULL AND open_turn IS NULL;
CREATE INDEX session_trash ON session (trashed_at) WHERE trashed_at IS NOT NULL;
CREATE INDEX session_resettable ON session (active_at, id)
WHERE channel IS NOT NULL AND ended_at IS NULL AND trashed_at IS NULL;

-- The position orders all events of the store as they were committed; AUTOINCREMENT, because a reader that
-- follows by position must never see a number again after a session was pruned.
CREATE TABLE event (
  position INTEGER PRIMARY KEY AUTOINCREMENT,
  session_id TEXT NOT NULL REFERENCES session (id),
  seq INTEGER NOT NULL CHECK (seq > 0),
  kind TEXT NOT NULL,
  at INTEGER NOT NULL,
  hash TEXT NOT NULL,
  body TEXT NOT NULL,
  UNIQUE (session_id, seq)
) STRICT;

CREATE TABLE draft (
  session_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id),
  turn_id TEXT NOT NULL,
  body TEXT NOT NULL,
  at INTEGER NOT NULL
, notice TEXT NOT NULL DEFAULT '', called TEXT NOT NULL DEFAULT '') STRICT, WITHOUT ROWID;

CREATE TABLE idempotency (
  session_id TEXT NOT NULL REFERENCES session (id),
  caller TEXT NOT NULL,
  key TEXT NOT NULL,
  request TEXT NOT NULL,
  turn_id TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (session_id, caller, key)
) STRICT, WITHOUT ROWID;

CREATE TABLE alias (
  alias TEXT NOT NULL PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES session (id),
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX alias_session ON alias (session_id);

CREATE TABLE channel (
  channel TEXT NOT NULL PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES session (id),
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX channel_session ON channel (session_id);

-- Queued input, in the order of arrival.
CREATE TABLE input (
  session_id TEXT NOT NULL REFERENCES session (id),
  place INTEGER NOT NULL,
  turn_id TEXT NOT NULL,
  mode TEXT NOT NULL CHECK (mode IN ('queue', 'steer', 'interrupt', 'stop')),
  body TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (session_id, place),
  UNIQUE (session_id, turn_id)
) STRICT, WITHOUT ROWID;

-- Questions to a person about a tool call, each answered once.
CREATE TABLE approval (
  session_id TEXT NOT NULL REFERENCES session (id),
  turn_id TEXT NOT NULL,
  call_id TEXT NOT NULL,
  question TEXT NOT NULL,
  asked_at INTEGER NOT NULL,
  allowed INTEGER,
  answered_by TEXT,
  answered_at INTEGER,
  id TEXT,
  proposal TEXT NOT NULL DEFAULT '{}',
  PRIMARY KEY (session_id, turn_id, call_id),
  CHECK ((allowed IS NULL) = (answered_at IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX approval_open ON approval (asked_at) WHERE allowed IS NULL;
CREATE INDEX approval_id ON approval (id) WHERE id IS NOT NULL;

-- Calls that a person approved beforehand: for one session, or always. A rule is revoked, never deleted.
CREATE TABLE approval_rule (
  id TEXT NOT NULL PRIMARY KEY,
  requester TEXT NOT NULL,
  tool TEXT NOT NULL,
  kind TEXT NOT NULL CHECK (kind IN ('exact', 'prefix', 'tool')),
  pattern TEXT NOT NULL,
  workdir TEXT NOT NULL,
  reasons TEXT NOT NULL,
  session_id TEXT REFERENCES session (id),
  created_by TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  revoked_at INTEGER,
  revoked_by TEXT,
  CHECK ((revoked_at IS NULL) = (revoked_by IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX approval_rule_active ON approval_rule (requester, tool) WHERE revoked_at IS NULL;
CREATE INDEX approval_rule_session ON approval_rule (session_id) WHERE session_id IS NOT NULL;

-- Finished chunks of a summary in progress: the worker that continues it after a crash reads them here.
CREATE TABLE chunk (
  session_id TEXT NOT NULL REFERENCES session (id),
  request TEXT NOT NULL,
  from_seq INTEGER NOT NULL,
  to_seq INTEGER NOT NULL,
  model TEXT NOT NULL,
  summary TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (session_id, request)
) STRICT, WITHOUT ROWID;

-- A hash of what a client was shown at the end of each turn, to recognise a client that sends its history.
-- A family is a session with its forks; only requests of the caller are matched without naming the session.
CREATE TABLE history (
  session_id TEXT NOT NULL REFERENCES session (id),
  seq INTEGER NOT NULL,
  hash TEXT NOT NULL,
  caller TEXT NOT NULL,
  family TEXT NOT NULL,
  reply TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (session_id, seq)
) STRICT, WITHOUT ROWID;

CREATE INDEX history_hash ON history (hash, caller, family, session_id);

-- A hash of the last reply alone, to recognise a client that sends only the end of its history, or a revised one.
CREATE INDEX history_reply ON history (reply, caller, session_id);

-- A repeated request is recognised before it is known which session it went to.
CREATE INDEX idempotency_caller ON idempotency (caller, key);

-- Background processes: their session, their last samples, and their end.
CREATE TABLE process (
  id TEXT NOT NULL PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES session (id),
  command TEXT NOT NULL,
  workdir TEXT NOT NULL,
  folder TEXT NOT NULL,
  host TEXT NOT NULL,
  boot TEXT NOT NULL,
  pid INTEGER,
  process_started TEXT,
  started_at INTEGER NOT NULL,
  started_mono INTEGER NOT NULL,
  ttl_seconds INTEGER NOT NULL,
  track TEXT NOT NULL,
  stop_reason TEXT,
  expired_at INTEGER,
  ended_at INTEGER,
  exit_code INTEGER,
  end_reason TEXT,
  CHECK ((pid IS NULL) = (process_started IS NULL)),
  CHECK ((ended_at IS NULL) = (end_reason IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX process_session ON process (session_id);
CREATE INDEX process_live ON process (id) WHERE ended_at IS NULL;

-- Due resets that are blocked, each with the reason that was recorded last.
CREATE TABLE reset_hold (
  session_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id),
  reason TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The connection of a platform: its worker, since when, the read position, and the last assigned numbers.
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

-- Messages of platforms, each once, in the order of arrival. The payload stays until the message is handled.
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
  at INTEGER NOT NULL, dismissed_at INTEGER,
  UNIQUE (platform, chat, message)
) STRICT, WITHOUT ROWID;

CREATE INDEX inbox_open ON inbox (platform, chat, number) WHERE state IN ('waiting', 'working');
CREATE INDEX inbox_dead ON inbox (at, id) WHERE state = 'dead';
CREATE INDEX inbox_undone ON inbox (platform, state) WHERE state <> 'done';

-- Where the reply of a turn is sent, and who requested the turn, by the platform's id.
CREATE TABLE address (
  session_id TEXT NOT NULL REFERENCES session (id),
  turn_id TEXT NOT NULL,
  platform TEXT NOT NULL,
  chat TEXT NOT NULL,
  reply_to TEXT NOT NULL,
  at INTEGER NOT NULL, person TEXT NOT NULL DEFAULT '',
  PRIMARY KEY (session_id, turn_id, platform, chat)
) STRICT, WITHOUT ROWID;

-- Deliveries, in the order of writing. Each is committed before it is sent, together with the event it reports.
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
, dismissed_at INTEGER) STRICT, WITHOUT ROWID;

CREATE INDEX outbox_open ON outbox (platform, chat, number) WHERE state IN ('waiting', 'sending');
CREATE INDEX outbox_trouble ON outbox (at, id) WHERE state IN ('failed', 'unknown');
CREATE INDEX outbox_undone ON outbox (platform, state) WHERE state <> 'sent';
CREATE INDEX outbox_turn ON outbox (session_id, turn_id) WHERE session_id IS NOT NULL;

-- People on platforms: pairing requests with their codes, and authorised people.
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

-- Preferences of a chat.
CREATE TABLE seat (
  channel TEXT NOT NULL PRIMARY KEY,
  busy TEXT NOT NULL CHECK (busy IN ('queue', 'steer', 'interrupt'))
) STRICT, WITHOUT ROWID;

-- Prompts that run on a schedule. A removed one stays, so that nothing restores it.
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
, terminal TEXT NOT NULL DEFAULT '') STRICT, WITHOUT ROWID;

CREATE INDEX schedule_due ON schedule (next_at, id) WHERE removed_at IS NULL;

-- One row for each time a schedule was due, with the result.
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

-- Each request reads the newest system text of its session: this index finds it without reading the log.
CREATE INDEX event_system ON event (session_id, seq) WHERE kind = 'system_changed';

-- Requests of the last minutes that started a turn, by a digest of their body, to recognise retries of clients.
-- The worker is the one that accepted the request or its newest retry.
CREATE TABLE recent_request (
  caller TEXT NOT NULL,
  digest TEXT NOT NULL,
  turn_id TEXT NOT NULL,
  session_id TEXT NOT NULL REFERENCES session (id),
  worker_id TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (caller, digest, turn_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX recent_request_at ON recent_request (at);
CREATE INDEX recent_request_session ON recent_request (session_id);

-- Turns that are active in a worker's process (a tool runs, or a replay prepares its first request). The row of a
-- dead worker stays: it shows which turns could have caused the death.
CREATE TABLE activity (
  session_id TEXT NOT NULL REFERENCES session (id),
  worker_id TEXT NOT NULL REFERENCES worker (id),
  turn_id TEXT NOT NULL,
  isolated INTEGER NOT NULL,
  PRIMARY KEY (session_id, worker_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX activity_worker ON activity (worker_id);

-- A command in a chat that waits for a choice in the person's next message.
CREATE TABLE pending_choice (
  channel TEXT NOT NULL,
  person TEXT NOT NULL,
  command TEXT NOT NULL,
  answers TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (channel, person)
) STRICT, WITHOUT ROWID;

-- The containers in which commands of sessions run. A session has at most one that has not ended.
CREATE TABLE container (
  id TEXT NOT NULL PRIMARY KEY,
  session_id TEXT NOT NULL REFERENCES session (id),
  name TEXT NOT NULL,
  image TEXT NOT NULL,
  engine TEXT NOT NULL,
  settings_hash TEXT NOT NULL,
  host TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  ended_at INTEGER,
  end_reason TEXT,
  CHECK ((ended_at IS NULL) = (end_reason IS NULL))
) STRICT, WITHOUT ROWID;

CREATE UNIQUE INDEX container_current ON container (session_id) WHERE ended_at IS NULL;

-- Finds a session's plan without reading its log.
CREATE INDEX event_plan ON event (session_id, seq) WHERE kind IN ('plan_changed', 'rewound');

-- Daily sums of the usage of models, derived from the log: by day (UTC), model, source and user. Costs are in billionths
-- of a US dollar; `unpriced` counts calls of unknown cost.
CREATE TABLE usage_day (
  day TEXT NOT NULL,
  model TEXT NOT NULL,
  source TEXT NOT NULL,
  sender TEXT NOT NULL,
  turns INTEGER NOT NULL,
  calls INTEGER NOT NULL,
  unpriced INTEGER NOT NULL,
  tokens_in INTEGER NOT NULL,
  tokens_out INTEGER NOT NULL,
  cache_read INTEGER NOT NULL,
  cache_write INTEGER NOT NULL,
  reasoning INTEGER NOT NULL,
  cost INTEGER NOT NULL, interrupted INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (day, model, source, sender)
) STRICT, WITHOUT ROWID;

-- The part of these sums that came from sessions which were deleted permanently.
CREATE TABLE usage_pruned (
  day TEXT NOT NULL,
  model TEXT NOT NULL,
  source TEXT NOT NULL,
  sender TEXT NOT NULL,
  turns INTEGER NOT NULL,
  calls INTEGER NOT NULL,
  unpriced INTEGER NOT NULL,
  tokens_in INTEGER NOT NULL,
  tokens_out INTEGER NOT NULL,
  cache_read INTEGER NOT NULL,
  cache_write INTEGER NOT NULL,
  reasoning INTEGER NOT NULL,
  cost INTEGER NOT NULL, interrupted INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (day, model, source, sender)
) STRICT, WITHOUT ROWID;

-- The same sums by session and model.
CREATE TABLE usage_session (
  session_id TEXT NOT NULL REFERENCES session (id),
  model TEXT NOT NULL,
  turns INTEGER NOT NULL,
  calls INTEGER NOT NULL,
  unpriced INTEGER NOT NULL,
  tokens_in INTEGER NOT NULL,
  tokens_out INTEGER NOT NULL,
  cache_read INTEGER NOT NULL,
  cache_write INTEGER NOT NULL,
  reasoning INTEGER NOT NULL,
  cost INTEGER NOT NULL, interrupted INTEGER NOT NULL DEFAULT 0,
  PRIMARY KEY (session_id, model)
) STRICT, WITHOUT ROWID;

-- Up to which position the log is summed up.
CREATE TABLE usage_state (
  key TEXT NOT NULL PRIMARY KEY,
  position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Amounts reserved in the budgets before a call of a model. `open`: the call runs, or its worker died. `settled`: the cost
-- is known, and the sums do not contain it yet. `lost`: the call broke off, and its estimate counts. NULL: no estimate.
CREATE TABLE reservation (
  id TEXT NOT NULL PRIMARY KEY,
  session_id TEXT NOT NULL,
  day TEXT NOT NULL,
  sender TEXT NOT NULL,
  model TEXT NOT NULL,
  amount INTEGER,
  state TEXT NOT NULL CHECK (state IN ('open', 'settled', 'lost')),
  worker_id TEXT NOT NULL,
  at INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX reservation_day ON reservation (day, sender);
CREATE INDEX reservation_session ON reservation (session_id);

-- By how much people have raised the limit of a session.
CREATE TABLE budget_raise (
  session_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id),
  amount INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- Where the copied part of a log ends: it was not spent by this session.
CREATE INDEX event_origin ON event (session_id, seq) WHERE kind IN ('forked', 'imported');

-- Tasks that sessions have delegated to child sessions. `delivery` says how the parent gets the completion: as the result
-- of the `call`, as input that wakes it, or as a note that does not.
CREATE TABLE delegation (
  child_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id),
  parent_id TEXT NOT NULL,
  turn_id TEXT NOT NULL,
  call_id TEXT NOT NULL,
  task_turn TEXT NOT NULL,
  title TEXT NOT NULL,
  delivery TEXT NOT NULL CHECK (delivery IN ('call', 'wake', 'note')),
  started_at INTEGER NOT NULL,
  deadline_at INTEGER NOT NULL,
  stop_reason TEXT NOT NULL DEFAULT '',
  ended_at INTEGER,
  outcome TEXT,
  reason TEXT NOT NULL DEFAULT '',
  reply TEXT NOT NULL DEFAULT '',
  delivered_at INTEGER,
  UNIQUE (parent_id, turn_id, call_id),
  CHECK ((ended_at IS NULL) = (outcome IS NULL)),
  CHECK (delivered_at IS NULL OR ended_at IS NOT NULL)
) STRICT, WITHOUT ROWID;

CREATE INDEX delegation_running ON delegation (deadline_at) WHERE ended_at IS NULL;
CREATE INDEX delegation_stopped ON delegation (child_id) WHERE ended_at IS NULL AND stop_reason <> '';

CREATE TABLE file_change (
  session_id TEXT NOT NULL REFERENCES session (id),
  number INTEGER NOT NULL,
  seq INTEGER NOT NULL,
  host TEXT NOT NULL,
  path TEXT NOT NULL,
  before_hash TEXT NOT NULL,
  after_hash TEXT NOT NULL,
  mode INTEGER NOT NULL,
  folder TEXT NOT NULL,
  problem TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (session_id, number)
) STRICT, WITHOUT ROWID;

CREATE TABLE file_image (
  session_id TEXT NOT NULL REFERENCES session (id),
  hash TEXT NOT NULL,
  size INTEGER NOT NULL,
  number INTEGER NOT NULL,
  content TEXT NOT NULL,
  PRIMARY KEY (session_id, hash)
) STRICT;

CREATE TABLE memory_fact (
  number INTEGER NOT NULL PRIMARY KEY,
  first INTEGER NOT NULL,
  owner TEXT NOT NULL,
  scope TEXT NOT NULL CHECK (scope IN ('user', 'project', 'global')),
  project TEXT NOT NULL,
  text TEXT NOT NULL,
  author TEXT NOT NULL,
  session_id TEXT NOT NULL,
  turn_id TEXT NOT NULL,
  call_id TEXT NOT NULL,
  seq INTEGER NOT NULL,
  sources TEXT NOT NULL,
  at INTEGER NOT NULL,
  replaced_by INTEGER,
  forgotten_at INTEGER,
  forgotten_by TEXT NOT NULL DEFAULT '',
  CHECK ((scope = 'global') = (owner = '')),
  CHECK ((scope = 'project') = (project <> '')),
  CHECK (forgotten_at IS NULL OR text = '')
) STRICT;

CREATE INDEX memory_fact_current ON memory_fact (owner, number) WHERE replaced_by IS NULL AND forgotten_at IS NULL;
CREATE INDEX memory_fact_first ON memory_fact (first);
CREATE UNIQUE INDEX memory_fact_call ON memory_fact (session_id, turn_id, call_id) WHERE call_id <> '';

-- Read-only links to sessions, as they were at an event. Only the hash of a link's token is stored. A revoked link stays, as
-- the record of who shared what, and until when.
CREATE TABLE share (
  id TEXT NOT NULL PRIMARY KEY,
  digest TEXT NOT NULL UNIQUE,
  session_id TEXT NOT NULL REFERENCES session (id),
  upto_seq INTEGER NOT NULL,
  title TEXT NOT NULL,
  created_at INTEGER NOT NULL,
  created_by TEXT NOT NULL,
  expires_at INTEGER NOT NULL,
  revoked_at INTEGER,
  revoked_by TEXT
) STRICT, WITHOUT ROWID;

CREATE INDEX share_session ON share (session_id, created_at);

-- The newest goal of each session that ever had one, as folded from its log.
CREATE TABLE goal (
  session_id TEXT NOT NULL PRIMARY KEY REFERENCES session (id),
  state TEXT NOT NULL,
  due INTEGER NOT NULL,
  deadline_at INTEGER NOT NULL,
  worker_id TEXT NOT NULL,
  body TEXT NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX goal_open ON goal (deadline_at) WHERE state IN ('active', 'paused');
CREATE INDEX goal_active ON goal (session_id) WHERE state = 'active';
