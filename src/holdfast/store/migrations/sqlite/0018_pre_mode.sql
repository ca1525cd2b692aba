-- The permission mode of a session: what its tool calls may do without asking.
ALTER TABLE session ADD COLUMN mode TEXT NOT NULL DEFAULT 'edits';
