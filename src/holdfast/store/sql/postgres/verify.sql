-- name: integrity
-- What the server knows to be wrong with the indexes; no row if nothing. Whether its files are sound is for its own tools
-- to say (checksums, amcheck).
SELECT 'the index ' || c.relname || ' is not valid' FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE NOT i.indisvalid AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema());

-- name: strays
-- Foreign keys that were not, or no longer, kept by the server: table, row, the table referred to.
SELECT conrelid::regclass::text, NULL, confrelid::regclass::text FROM pg_constraint
WHERE contype = 'f' AND NOT convalidated AND connamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema());

-- name: quick
-- As integrity.
SELECT 'the index ' || c.relname || ' is not valid' FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid
WHERE NOT i.indisvalid AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema());
