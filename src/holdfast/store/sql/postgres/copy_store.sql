-- name: list_tables
-- The tables of the schema that this connection works in.
SELECT relname FROM pg_class
WHERE relkind IN ('r', 'p') AND relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
ORDER BY relname;

-- name: list_columns
-- The columns of a table, in order.
SELECT column_name FROM information_schema.columns
WHERE table_schema = current_schema() AND table_name = :table
ORDER BY ordinal_position;

-- name: insert
COPY {table} ({columns}) FROM STDIN;

-- name: get_last_position
SELECT settled_position();

-- name: set_last_position
-- The next event gets a higher position than this.
SELECT setval('event_position', greatest(:position, 1), :position > 0);
