-- As in SQLite, table by table and column by column; a test compares them. What differs: texts compare by their bytes,
-- whatever the database's collation; the rows of a session are found by its id first, so that they can be kept together
-- when the tables are spread over machines; and positions are given out by a function.
CREATE TABLE meta (
  key TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  value TEXT COLLATE "C" NOT NULL
);

CREATE TABLE worker (
  id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  kind TEXT COLLATE "C" NOT NULL,
  host TEXT COLLATE "C" NOT NULL,
  boot TEXT COLLATE "C" NOT NULL,
  pid BIGINT NOT NULL,
  process_started TEXT COLLATE "C" NOT NULL,
  version TEXT COLLATE "C" NOT NULL,
  started_at BIGINT NOT NULL,
  beat BIGINT NOT NULL DEFAULT 0,
  beat_at BIGINT NOT NULL,
  stalled_since BIGINT,
  ended_at BIGINT,
  end_reason TEXT COLLATE "C",
  CHECK ((ended_at IS NULL) = (end_reason IS NULL))
) WITH (fillfactor = 50);

CREATE INDEX worker_alive ON worker (id) WHERE ended_at IS NULL;

CREATE TABLE session (
  id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  seq BIGINT NOT NULL CHECK (seq >= 0),
  hash TEXT COLLATE "C" NOT NULL,
  lease_worker TEXT COLLATE "C" REFERENCES worker (id),
  lease_token BIGINT NOT NULL DEFAULT 0,
  title TEXT COLLATE "C",
  source TEXT COLLATE "C" NOT NULL,
  channel TEXT COLLATE "C",
  model TEXT COLLATE "C" NOT NULL,
  created_at BIGINT NOT NULL,
  updated_at BIGINT NOT NULL,
  ended_at BIGINT,
  end_reason TEXT COLLATE "C",
  epoch BIGINT NOT NULL,
  message_count BIGINT NOT NULL,
  turn_count BIGINT NOT NULL,
  tokens_in BIGINT NOT NULL,
  tokens_out BIGINT NOT NULL,
  parent_id TEXT COLLATE "C",
  side_of TEXT COLLATE "C",
  preview TEXT COLLATE "C" NOT NULL,
  pinned BIGINT NOT NULL,
  trashed_at BIGINT,
  open_turn TEXT COLLATE "C",
  quarantined TEXT COLLATE "C",
  CHECK ((ended_at IS NULL) = (end_reason IS NULL))
) WITH (fillfactor = 70);

CREATE INDEX session_activity ON session (updated_at, id);
CREATE INDEX session_title ON session (title) WHERE title IS NOT NULL;
CREATE INDEX session_lease ON session (lease_worker) WHERE lease_worker IS NOT NULL;
CREATE INDEX session_unfinished ON session (open_turn) WHERE open_turn IS NOT NULL;
CREATE INDEX session_trash ON session (trashed_at) WHERE trashed_at IS NOT NULL;

-- A sequence gives numbers out in the order they are asked for, not in that of the commits. So a transaction first drives
-- in a peg: a lock, held to its end, that names the lowest position it can get. Nobody follows past a peg.
CREATE SEQUENCE event_position;

CREATE FUNCTION next_position() RETURNS BIGINT LANGUAGE plpgsql AS $$
BEGIN
  IF coalesce(current_setting('holdfast.pegged', true), '') = '' THEN
    PERFORM pg_advisory_xact_lock_shared((18502::BIGINT << 40) + last_value + is_called::INTEGER) FROM event_position;
    PERFORM set_config('holdfast.pegged', 'yes', true);
  END IF;
  RETURN nextval('event_position');
END $$;

-- The highest position below which nothing can become visible any more, to those who begin to read after this. The numbers
-- are read before the pegs: whoever has been given one of them has driven in its peg before.
CREATE FUNCTION settled_position() RETURNS BIGINT LANGUAGE plpgsql AS $$
DECLARE
  given BIGINT;
  pegged BIGINT;
BEGIN
  SELECT last_value - 1 + is_called::INTEGER INTO given FROM event_position;
  SELECT min(((classid::BIGINT << 32) | objid::BIGINT) & ((1::BIGINT << 40) - 1)) INTO pegged FROM pg_locks
  WHERE locktype = 'advisory' AND objsubid = 1 AND classid::BIGINT >> 8 = 18502
    AND database = (SELECT oid FROM pg_database WHERE datname = current_database());
  RETURN least(given, pegged - 1);
END $$;

CREATE TABLE event (
  position BIGINT NOT NULL DEFAULT next_position(),
  session_id TEXT COLLATE "C" NOT NULL REFERENCES session (id),
  seq BIGINT NOT NULL CHECK (seq > 0),
  kind TEXT COLLATE "C" NOT NULL,
  at BIGINT NOT NULL,
  hash TEXT COLLATE "C" NOT NULL,
  body TEXT COLLATE "C" NOT NULL,
  PRIMARY KEY (session_id, seq)
);

CREATE INDEX event_place ON event (position);
ALTER SEQUENCE event_position OWNED BY event.position;

CREATE TABLE draft (
  session_id TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES session (id),
  turn_id TEXT COLLATE "C" NOT NULL,
  body TEXT COLLATE "C" NOT NULL,
  at BIGINT NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE idempotency (
  session_id TEXT COLLATE "C" NOT NULL REFERENCES session (id),
  caller TEXT COLLATE "C" NOT NULL,
  key TEXT COLLATE "C" NOT NULL,
  request TEXT COLLATE "C" NOT NULL,
  turn_id TEXT COLLATE "C" NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (session_id, caller, key)
);

CREATE TABLE alias (
  alias TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  session_id TEXT COLLATE "C" NOT NULL REFERENCES session (id),
  at BIGINT NOT NULL
);

CREATE INDEX alias_session ON alias (session_id);

CREATE TABLE channel (
  channel TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  session_id TEXT COLLATE "C" NOT NULL REFERENCES session (id),
  at BIGINT NOT NULL
);

CREATE INDEX channel_session ON channel (session_id);

CREATE TABLE input (
  session_id TEXT COLLATE "C" NOT NULL REFERENCES session (id),
  place BIGINT NOT NULL,
  turn_id TEXT COLLATE "C" NOT NULL,
  mode TEXT COLLATE "C" NOT NULL CHECK (mode IN ('queue', 'steer', 'interrupt', 'stop')),
  body TEXT COLLATE "C" NOT NULL,
  at BIGINT NOT NULL,
  PRIMARY KEY (session_id, place),
  UNIQUE (session_id, turn_id)
);

CREATE TABLE approval (
  session_id TEXT COLLATE "C" NOT NULL REFERENCES session (id),
  turn_id TEXT COLLATE "C" NOT NULL,
  call_id TEXT COLLATE "C" NOT NULL,
  question TEXT COLLATE "C" NOT NULL,
  asked_at BIGINT NOT NULL,
  allowed BIGINT,
  answered_by TEXT COLLATE "C",
  answered_at BIGINT,
  PRIMARY KEY (session_id, turn_id, call_id),
  CHECK ((allowed IS NULL) = (answered_at IS NULL))
);

CREATE INDEX approval_open ON approval (asked_at) WHERE allowed IS NULL;

-- What only PostgreSQL needs. The number of the last transaction that each writer has committed: after a connection was
-- lost in the midst of a commit, it tells what became of it.
CREATE TABLE mark (
  slot TEXT COLLATE "C" NOT NULL PRIMARY KEY,
  number BIGINT NOT NULL,
  at BIGINT NOT NULL
) WITH (fillfactor = 20);

-- The search index: the words of each event, without differences of case, and how far it is.
CREATE TABLE words (
  session_id TEXT COLLATE "C" NOT NULL,
  position BIGINT NOT NULL,
  folded TEXT NOT NULL,
  PRIMARY KEY (session_id, position)
);

CREATE INDEX words_position ON words (position);

CREATE TABLE words_state (
  one BIGINT NOT NULL PRIMARY KEY CHECK (one = 1),
  store_id TEXT COLLATE "C" NOT NULL,
  position BIGINT NOT NULL,
  mark TEXT COLLATE "C" NOT NULL
);
