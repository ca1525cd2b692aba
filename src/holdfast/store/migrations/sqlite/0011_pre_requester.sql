-- Who asked for a turn, in the platform's own words: only they and approvers may answer its questions.
ALTER TABLE address ADD COLUMN person TEXT NOT NULL DEFAULT '';

-- A command in a chat that waits for the person's next message to say how to go on.
CREATE TABLE pending_choice (
  channel TEXT NOT NULL,
  person TEXT NOT NULL,
  command TEXT NOT NULL,
  answers TEXT NOT NULL,
  at INTEGER NOT NULL,
  PRIMARY KEY (channel, person)
) STRICT, WITHOUT ROWID;
