-- name: get_last_position
-- Like log.get_last_position, but 0 in an empty store.
SELECT settled_position();

-- name: has_extension
-- Whether the extension for trigram indexes is installed.
SELECT 1 FROM pg_extension WHERE extname = 'pg_trgm';

-- name: has_index
-- Whether the trigram index exists.
SELECT 1 FROM pg_class WHERE oid = to_regclass('words_trigrams');

-- name: create_extension
-- Needs the CREATE privilege in the database, and the contrib package of PostgreSQL on the server.
CREATE EXTENSION IF NOT EXISTS pg_trgm;

-- name: create
CREATE INDEX IF NOT EXISTS words_trigrams ON words USING gin (folded gin_trgm_ops) WITH (gin_pending_list_limit = 1024);

-- name: get_state
-- Which store is indexed, up to which position, and which event is there. No row: the index is new.
SELECT store_id, position, mark FROM words_state;

-- name: lock_state
-- Like get_state, and locks the state until the end of the transaction.
SELECT store_id, position, mark FROM words_state FOR UPDATE;

-- name: add_state
-- Binds a new index to this store.
INSERT INTO words_state (one, store_id, position, mark) VALUES (1, :store_id, 0, '') ON CONFLICT (one) DO NOTHING;

-- name: put_state
-- Records how far the store is indexed.
UPDATE words_state SET store_id = :store_id, position = :position, mark = :mark;

-- name: add
-- Adds nothing if the session was pruned; it cannot be pruned during this transaction.
INSERT INTO words (session_id, position, first_position, letters, folded)
SELECT id, :position, :first_position, :letters, :folded
FROM session WHERE id = :session_id FOR KEY SHARE;

-- name: list_open_passages
-- The passages of a session that are not full. Their index has the same limit.
SELECT position, letters FROM words WHERE session_id = :session_id AND letters < 8192 ORDER BY position;

-- name: take_open_passages
-- Removes and returns passages, in order, to merge them.
WITH taken AS (
  DELETE FROM words WHERE session_id = :session_id AND letters < 8192
  RETURNING session_id, position, first_position, letters, folded
)
SELECT * FROM taken ORDER BY position;

-- name: delete_all
DELETE FROM words;

-- name: delete_state
DELETE FROM words_state;

-- name: find_by_one
-- Events that may match, newest first: those with one of the spellings of a term, in the newest passages that contain it.
-- Returns the number of passages, and the positions; those below the last passage are found with the next ones.
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

-- name: find_by_two
-- Like find_by_one, for two terms.
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

-- name: find_by_three
-- Like find_by_one, for three terms.
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
