-- name: list_tables
-- The tables of a SQLite store. The other queries of this file get {table} and {columns} from these names.
SELECT name FROM sqlite_schema WHERE type = 'table' AND name NOT LIKE 'sqlite_%';

-- name: list_columns
-- The columns of a table, in order.
SELECT name FROM pragma_table_info(:table) ORDER BY cid;

-- name: read_rows
SELECT {columns} FROM {table};

-- name: insert
INSERT INTO {table} ({columns}) VALUES ({marks});

-- name: delete_rows
DELETE FROM {table};

-- name: count
SELECT count(*) FROM {table};

-- name: get_last_position
-- The highest position ever assigned to an event; no row before the first.
SELECT seq FROM sqlite_sequence WHERE name = 'event';

-- name: clear_last_position
DELETE FROM sqlite_sequence WHERE name = 'event';

-- name: set_last_position
-- The next event gets a higher position than this.
INSERT INTO sqlite_sequence (name, seq) VALUES ('event', :position);
