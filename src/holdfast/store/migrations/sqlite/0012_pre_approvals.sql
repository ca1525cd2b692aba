-- A question has an id of its own, and all that its call would do, as JSON.
ALTER TABLE approval ADD COLUMN id TEXT;
ALTER TABLE approval ADD COLUMN proposal TEXT NOT NULL DEFAULT '{}';

UPDATE approval SET id = 'q-' || turn_id || '-' || call_id WHERE allowed IS NULL;

CREATE INDEX approval_id ON approval (id) WHERE id IS NOT NULL;

-- How many calls of the open turn wait for approval.
ALTER TABLE session ADD COLUMN asking INTEGER NOT NULL DEFAULT 0;

UPDATE session SET asking = (
  SELECT count(*) FROM approval
  WHERE approval.session_id = session.id AND approval.turn_id = session.open_turn AND approval.allowed IS NULL
) WHERE open_turn IS NOT NULL;

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
