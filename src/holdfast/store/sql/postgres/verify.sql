-- name: check_integrity
-- Invalid indexes; no row if there are none. PostgreSQL's own tools (checksums, amcheck) check its files.
SELECT 'the index ' || c.relname || ' is not valid' FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE NOT i.indisvalid AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema());

-- name: list_dangling_rows
-- Foreign keys that the server does not enforce: table, row, the table referred to.
SELECT conrelid::regclass::text, NULL, confrelid::regclass::text FROM pg_constraint
WHERE contype = 'f' AND NOT convalidated AND connamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema());

-- name: check_quickly
-- Like check_integrity.
SELECT 'the index ' || c.relname || ' is not valid' FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE NOT i.indisvalid AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema());
