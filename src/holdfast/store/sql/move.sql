-- name: tables
-- The tables of a SQLite store. In this file, {table} and {columns} are put in from the names that are found so.
SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%';

-- name: columns
-- The columns of a table, in order.
SELECT name FROM pragma_table_info(:table) ORDER BY cid;

-- name: rows
SELECT {columns} FROM {table};

-- name: put
INSERT INTO {table} ({columns}) VALUES ({marks});

-- name: empty
DELETE FROM {table};

-- name: count
SELECT count(*) FROM {table};

-- name: newest
-- The highest position ever given to an event; no row before the first.
SELECT seq FROM sqlite_sequence WHERE name = 'event';

-- name: forget_newest
DELETE FROM sqlite_sequence WHERE name = 'event';

-- name: go_on_from
-- The next event gets a higher position than this.
INSERT INTO sqlite_sequence (name, seq) VALUES ('event', :position);
