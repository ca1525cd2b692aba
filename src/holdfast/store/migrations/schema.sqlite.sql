-- The present schema, for reading: a store is made by the migrations beside this file, and a test compares the two.

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

-- The position orders all events of the store as they were committed; AUTOINCREMENT, because a reader that
-- follows by position must never see a number come back after a session was pruned.
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
) STRICT, WITHOUT ROWID;

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

-- Input that waits for its turn, in the order of its arrival.
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
  PRIMARY KEY (session_id, turn_id, call_id),
  CHECK ((allowed IS NULL) = (answered_at IS NULL))
) STRICT, WITHOUT ROWID;

CREATE INDEX approval_open ON approval (asked_at) WHERE allowed IS NULL;
