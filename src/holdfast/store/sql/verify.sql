-- name: get_head
-- The end of a session's log, according to its row and to its events.
SELECT session.seq, session.hash, (SELECT max(event.seq) FROM event WHERE event.session_id = session.id)
FROM session WHERE session.id = :id;

-- name: list_heads
-- The end of every log, for comparing two copies of a store.
SELECT id, seq, hash FROM session ORDER BY id;

-- name: check_integrity
-- Problems that SQLite finds in its file; one row 'ok' if there are none. The limit is arbitrary.
PRAGMA integrity_check(20);

-- name: list_dangling_rows
-- Rows that refer to a missing row: table, row, the table referred to.
PRAGMA foreign_key_check;

-- name: check_quickly
-- Like check_integrity, without comparing indexes with tables.
PRAGMA quick_check(5);
