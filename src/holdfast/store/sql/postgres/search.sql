-- name: newest
-- As log.last_position, but 0 in an empty store.
SELECT settled_position();

-- name: trigrams
-- Whether the extension that makes searches quick is there.
SELECT 1 FROM pg_extension WHERE extname = 'pg_trgm';

-- name: indexed
-- Whether the texts have their index of trigrams.
SELECT 1 FROM pg_class WHERE oid = to_regclass('words_trigrams');

-- name: install
-- Needs the right to create in this database, and the package with PostgreSQL's additional modules on its machine.
CREATE EXTENSION IF NOT EXISTS pg_trgm;

-- name: create
CREATE INDEX IF NOT EXISTS words_trigrams ON words USING gin (folded gin_trgm_ops) WITH (gin_pending_list_limit = 1024);

-- name: state
-- Which store is indexed, up to where, and what stands there. No row: nothing is yet.
SELECT store_id, position, mark FROM words_state;

-- name: hold
-- As state, and keeps all others from moving on until the end of this transaction.
SELECT store_id, position, mark FROM words_state FOR UPDATE;

-- name: begin
-- Makes a new index one of this store, if nobody has.
INSERT INTO words_state (one, store_id, position, mark) VALUES (1, :store_id, 0, '') ON CONFLICT (one) DO NOTHING;

-- name: settle
-- Says how far the index is.
UPDATE words_state SET store_id = :store_id, position = :position, mark = :mark;

-- name: add
-- Unless the session was pruned meanwhile; it cannot be while this is under way.
INSERT INTO words (session_id, position, first_position, letters, folded)
SELECT id, :position, :first_position, :letters, :folded
FROM session WHERE id = :session_id FOR KEY SHARE;

-- name: growing
-- The passages of a session that are not full, which is said here and in their index.
SELECT position, letters FROM words WHERE session_id = :session_id AND letters < 8192 ORDER BY position;

-- name: take
-- Takes passages out, in order, to make one of them.
WITH taken AS (
  DELETE FROM words WHERE session_id = :session_id AND letters < 8192
  RETURNING session_id, position, first_position, letters, folded
)
SELECT * FROM taken ORDER BY position;

-- name: forget_all
DELETE FROM words;

-- name: forget_state
DELETE FROM words_state;

-- name: by_one
-- Events that may fit, newest first: those that hold one of the spellings of a needle, of the newest passages that do.
-- How many passages there were, and the positions; those below the last passage come with the next ones.
WITH passage AS MATERIALIZED (
  SELECT session_id, position, folded FROM words
  WHERE first_position < :before AND (CAST(:session_id AS TEXT) IS NULL OR session_id = :session_id)
    AND folded LIKE ANY (CAST(:a AS TEXT[]))
  ORDER BY position DESC LIMIT :count
), edge AS (
  SELECT count(*) AS found, CASE WHEN count(*) < :count THEN 0 ELSE min(position) END AS lowest FROM passage
), event_of AS (
  SELECT event.position FROM passage CROSS JOIN unnest(string_to_array(folded, chr(30))) AS part
  JOIN event ON event.session_id = passage.session_id AND event.seq = CAST(split_part(part, chr(31), 1) AS BIGINT)
  WHERE event.position < :before AND part LIKE ANY (CAST(:a AS TEXT[]))
)
SELECT edge.found, event_of.position FROM edge LEFT JOIN event_of ON event_of.position >= edge.lowest
ORDER BY event_of.position DESC;

-- name: by_two
-- As by_one, for two needles.
WITH passage AS MATERIALIZED (
  SELECT session_id, position, folded FROM words
  WHERE first_position < :before AND (CAST(:session_id AS TEXT) IS NULL OR session_id = :session_id)
    AND folded LIKE ANY (CAST(:a AS TEXT[])) AND folded LIKE ANY (CAST(:b AS TEXT[]))
  ORDER BY position DESC LIMIT :count
), edge AS (
  SELECT count(*) AS found, CASE WHEN count(*) < :count THEN 0 ELSE min(position) END AS lowest FROM passage
), event_of AS (
  SELECT event.position FROM passage CROSS JOIN unnest(string_to_array(folded, chr(30))) AS part
  JOIN event ON event.session_id = passage.session_id AND event.seq = CAST(split_part(part, chr(31), 1) AS BIGINT)
  WHERE event.position < :before AND part LIKE ANY (CAST(:a AS TEXT[])) AND part LIKE ANY (CAST(:b AS TEXT[]))
)
SELECT edge.found, event_of.position FROM edge LEFT JOIN event_of ON event_of.position >= edge.lowest
ORDER BY event_of.position DESC;

-- name: by_three
-- As by_one, for three needles.
WITH passage AS MATERIALIZED (
  SELECT session_id, position, folded FROM words
  WHERE first_position < :before AND (CAST(:session_id AS TEXT) IS NULL OR session_id = :session_id)
    AND folded LIKE ANY (CAST(:a AS TEXT[])) AND folded LIKE ANY (CAST(:b AS TEXT[])) AND folded LIKE ANY (CAST(:c AS TEXT[]))
  ORDER BY position DESC LIMIT :count
), edge AS (
  SELECT count(*) AS found, CASE WHEN count(*) < :count THEN 0 ELSE min(position) END AS lowest FROM passage
), event_of AS (
  SELECT event.position FROM passage CROSS JOIN unnest(string_to_array(folded, chr(30))) AS part
  JOIN event ON event.session_id = passage.session_id AND event.seq = CAST(split_part(part, chr(31), 1) AS BIGINT)
  WHERE event.position < :before AND part LIKE ANY (CAST(:a AS TEXT[])) AND part LIKE ANY (CAST(:b AS TEXT[])) AND part LIKE ANY (CAST(:c AS TEXT[]))
)
SELECT edge.found, event_of.position FROM edge LEFT JOIN event_of ON event_of.position >= edge.lowest
ORDER BY event_of.position DESC;
