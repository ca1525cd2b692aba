-- name: head
-- Where a session's log ends, by its head and by the events that are there.
SELECT session.seq, session.hash, (SELECT max(event.seq) FROM event WHERE event.session_id = session.id)
FROM session WHERE session.id = :id;

-- name: heads
-- The end of every log, for comparing two copies of a store.
SELECT id, seq, hash FROM session ORDER BY id;

-- name: integrity
-- What the database itself finds wrong with its files; one row 'ok' if nothing. SQLite's own; the numbers of rows is arbitrary.
PRAGMA integrity_check(20);

-- name: strays
-- Rows that refer to a row which is not there: table, row, the table referred to. SQLite's own.
PRAGMA foreign_key_check;

-- name: quick
-- As integrity, but without comparing the indexes with their tables. SQLite's own.
PRAGMA quick_check(5);
