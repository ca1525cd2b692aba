-- name: settings
-- What every promise rests on, for one connection. Whoever waits for a lock gives up after a while; a transaction whose
-- worker was cut off is ended by the server, so that nobody waits for it for ever. In the middle of a batch the
-- server does not count as idle; there it is the line on which nothing is acknowledged any more that ends it.
SELECT
  set_config('lock_timeout', :lock_timeout, false),
  set_config('idle_in_transaction_session_timeout', :idle_timeout, false),
  set_config('tcp_keepalives_idle', '20', false),
  set_config('tcp_keepalives_interval', '5', false),
  set_config('tcp_keepalives_count', '3', false),
  set_config('tcp_user_timeout', '20000', false),
  CASE WHEN current_setting('synchronous_commit') IN ('off', 'local')
    THEN set_config('synchronous_commit', 'on', false) END;

-- name: about
-- What must be known of a server before it is trusted: its release, the encoding, whether it flushes, whether it is a standby.
SELECT current_setting('server_version_num'), current_setting('server_encoding'), current_setting('fsync'),
  current_setting('full_page_writes'), pg_is_in_recovery(), current_setting('transaction_read_only'),
  current_setting('lc_ctype');

-- name: same
-- What only the same database of the same server answers.
SELECT pg_postmaster_start_time(), oid FROM pg_database WHERE datname = current_database();

-- name: pid
SELECT pg_backend_pid();

-- name: backends
-- The lines that this server knows of.
SELECT pid FROM pg_stat_activity WHERE datname = current_database();

-- name: clock
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
-- Nobody else who names this writes until the end of the transaction.
SELECT pg_advisory_xact_lock(CAST(:high AS INTEGER), CAST(:low AS INTEGER));

-- name: lock_shared
-- Nobody takes this lock alone until the end of the transaction.
SELECT pg_advisory_xact_lock_shared(CAST(:high AS INTEGER), CAST(:low AS INTEGER));

-- name: mark
-- Numbers this transaction, so that its writer can find out what became of it. Waits for an older one of the same writer.
INSERT INTO mark (slot, number, at) VALUES (:slot, :number, :at)
ON CONFLICT (slot) DO UPDATE SET number = excluded.number, at = excluded.at;

-- name: marked
-- The number of the last transaction of a writer that was committed, once none of it is under way any more.
INSERT INTO mark (slot, number, at) VALUES (:slot, 0, :at)
ON CONFLICT (slot) DO UPDATE SET at = excluded.at
RETURNING number;

-- name: unmark
-- Forgets a writer that has ended.
DELETE FROM mark WHERE slot = :slot;

-- name: unmark_old
-- Forgets writers that were killed long ago.
DELETE FROM mark WHERE at < :before;

-- name: listen
LISTEN holdfast;

-- name: notify
SELECT count(pg_notify('holdfast', topic)) FROM unnest(CAST(:topics AS TEXT[])) AS topic;

-- name: ours
-- Whether the ledger of migrations is one of ours.
SELECT 1 FROM pg_class WHERE oid = to_regclass('migration') AND obj_description(oid, 'pg_class') = 'Holdfast';

-- name: create_ledger
CREATE TABLE migration (
  number BIGINT NOT NULL PRIMARY KEY,
  name TEXT NOT NULL,
  digest TEXT NOT NULL,
  release TEXT NOT NULL
);
COMMENT ON TABLE migration IS 'Holdfast';

-- name: applied
SELECT coalesce(max(number), 0) FROM migration;

-- name: record
INSERT INTO migration (number, name, digest, release) VALUES (:number, :name, :digest, :release);

-- name: alone
-- Nobody else migrates until the end of the transaction.
SELECT pg_advisory_xact_lock(18502, 1);

-- name: close_to_others
-- Nobody else changes anything until the end of the transaction.
LOCK TABLE worker, session, event IN EXCLUSIVE MODE;

-- name: size
-- How many bytes the database takes.
SELECT pg_database_size(current_database());
