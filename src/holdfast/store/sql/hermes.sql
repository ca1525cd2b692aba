-- name: list_tables
-- The tables of a database of another program.
SELECT name FROM sqlite_master WHERE type = 'table';

-- name: get_version
-- Which version of its schema a Hermes database has.
SELECT max(version) AS version FROM schema_version;

-- name: list_sessions
-- Every session of a Hermes database. Which columns there are depends on its version.
SELECT * FROM sessions ORDER BY started_at, id;

-- name: list_messages
-- The messages of one session of a Hermes database, in the order they were written.
SELECT * FROM messages WHERE session_id = :session ORDER BY id;
