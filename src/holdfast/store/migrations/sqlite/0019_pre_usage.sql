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
  cost INTEGER NOT NULL,
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
  cost INTEGER NOT NULL,
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
  cost INTEGER NOT NULL,
  PRIMARY KEY (session_id, model)
) STRICT, WITHOUT ROWID;

-- Up to which position the log is summed up.
CREATE TABLE usage_state (
  key TEXT NOT NULL PRIMARY KEY,
  position INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

INSERT INTO usage_state (key, position) VALUES ('usage', 0);

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
