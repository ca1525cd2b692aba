-- name: configure
-- The settings of a connection. Waiting for a lock has a time limit. The server ends a transaction whose worker was cut
-- off, so that others do not wait for it forever. In the middle of a batch the connection does not count as idle; there
-- the TCP timeouts end it.
SELECT
  set_config('lock_timeout', :lock_timeout, false),
  set_config('idle_in_transaction_session_timeout', :idle_timeout, false),
  set_config('tcp_keepalives_idle', '20', false),
  set_config('tcp_keepalives_interval', '5', false),
  set_config('tcp_keepalives_count', '3', false),
  set_config('tcp_user_timeout', '20000', false),
  CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
    THEN set_config('synchronous_commit', 'on', false) END;

-- name: get_server_facts
-- Facts that decide whether a server can be used: version, encoding, fsync, standby, read-only, LC_CTYPE.
SELECT current_setting('server_version_num'), current_setting('server_encoding'), current_setting('fsync'),
  current_setting('full_page_writes'), pg_is_in_recovery(), current_setting('transaction_read_only'),
  current_setting('lc_ctype');

-- name: get_database_identity
-- Identifies the database and its server.
SELECT pg_postmaster_start_time(), oid FROM pg_database WHERE datname = current_database();

-- name: get_backend_pid
SELECT pg_backend_pid();

-- name: list_backends
-- The server processes of the connections to this database.
SELECT pid FROM pg_stat_activity WHERE datname = current_database();

-- name: get_time
-- The server's time, in microseconds since 1970 UTC.
SELECT CAST(extract(epoch FROM clock_timestamp()) * 1000000 AS BIGINT);

-- name: begin
BEGIN ISOLATION LEVEL READ COMMITTED READ WRITE;

-- name: begin_read
BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY;

-- name: commit
COMMIT;

-- name: rollback
ROLLBACK;

-- name: lock
-- Takes an exclusive lock on a key until the end of the transaction.
SELECT pg_advisory_xact_lock(CAST(:high AS INTEGER), CAST(:low AS INTEGER));

-- name: lock_shared
-- Takes a shared lock on a key until the end of the transaction.
SELECT pg_advisory_xact_lock_shared(CAST(:high AS INTEGER), CAST(:low AS INTEGER));

-- name: try_locks
-- Takes locks on several keys until the end of the transaction, without waiting. Returns for each, in order, whether it was free.
SELECT CASE shared
  WHEN 1 THEN pg_try_advisory_xact_lock_shared(high, low)
  ELSE pg_try_advisory_xact_lock(high, low)
END
FROM unnest(CAST(:highs AS INTEGER[]), CAST(:lows AS INTEGER[]), CAST(:shared AS INTEGER[])) AS key (high, low, shared);

-- name: limit_lock_wait
-- A transaction that holds the locks of many sessions waits only briefly for other locks.
SELECT set_config('lock_timeout', '200ms', true);

-- name: put_mark
-- Numbers this transaction, so that its writer can find out whether it was committed. Waits for an older one of the same writer.
INSERT INTO mark (slot, number, at) VALUES (:slot, :number, :at)
ON CONFLICT (slot) DO UPDATE SET number = excluded.number, at = excluded.at;

-- name: get_mark
-- The number of the last committed transaction of a writer. Waits for one that is in progress.
INSERT INTO mark (slot, number, at) VALUES (:slot, 0, :at)
ON CONFLICT (slot) DO UPDATE SET at = excluded.at
RETURNING number;

-- name: delete_mark
-- Deletes the mark of a writer that has ended.
DELETE FROM mark WHERE slot = :slot;

-- name: delete_old_marks
-- Deletes the marks of writers that were killed long ago.
DELETE FROM mark WHERE at < :before;

-- name: listen
LISTEN holdfast;

-- name: notify
SELECT count(pg_notify('holdfast', topic)) FROM unnest(CAST(:topics AS TEXT[])) AS topic;

-- name: has_our_ledger
-- Whether the table of migrations belongs to Holdfast.
SELECT 1 FROM pg_class WHERE oid = to_regclass('migration') AND obj_description(oid, 'pg_class') = 'Holdfast';

-- name: create_ledger
CREATE TABLE migration (
  number BIGINT NOT NULL PRIMARY KEY,
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  release TEXT NOT NULL
);
COMMENT ON TABLE migration IS 'Holdfast';

-- name: get_applied
SELECT coalesce(max(number), 0) FROM migration;

-- name: record_migration
INSERT INTO migration (number, name, digest, release) VALUES (:number, :name, :digest, :release);

-- name: lock_migration
-- Prevents other migrations until the end of the transaction.
SELECT pg_advisory_xact_lock(18502, 1);

-- name: lock_tables
-- Prevents all other writes until the end of the transaction.
LOCK TABLE worker, session, event IN EXCLUSIVE MODE;

-- name: get_size
-- The size of the database in bytes.
SELECT pg_database_size(current_database());

-- name: read_table
-- Reads every value of a table, also those in its TOAST table. Fails if one cannot be read.
SELECT count(t::TEXT) FROM {table} AS t;

-- name: list_indexes
-- The B-tree indexes of the schema: table, columns, and the condition of a partial index.
SELECT i.indrelid::regclass::text,
  (SELECT string_agg(pg_get_indexdef(i.indexrelid, k, true), ', ' ORDER BY k) FROM generate_series(1, i.indnkeyatts) AS k),
  coalesce(pg_get_expr(i.indpred, i.indrelid), 'true')
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
WHERE a.amname = 'btree' AND c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = current_schema())
ORDER BY 1, 2;

-- name: use_indexes
-- Makes this connection use indexes wherever possible.
SELECT set_config('enable_seqscan', 'off', false), set_config('enable_bitmapscan', 'off', false),
  set_config('enable_sort', 'off', false);

-- name: read_index
-- Scans a whole index. Fails if it cannot be read.
SELECT count(*) FROM (SELECT 1 FROM {table} WHERE {condition} ORDER BY {columns} OFFSET 0) AS walked;
