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
CREATE INDEX IF NOT EXISTS words_trigrams ON words USING gin (folded gin_trgm_ops);

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
INSERT INTO words (session_id, position, folded) VALUES (:session_id, :position, :folded)
ON CONFLICT (session_id, position) DO NOTHING;

-- name: forget
DELETE FROM words WHERE position = :position;

-- name: forget_all
DELETE FROM words;

-- name: forget_state
DELETE FROM words_state;

-- name: by_one
-- Events that may fit, newest first: those that hold one of the spellings of a needle.
SELECT position FROM words
WHERE position < :before AND (CAST(:session_id AS TEXT) IS NULL OR session_id = :session_id)
  AND folded LIKE ANY (CAST(:a AS TEXT[]))
ORDER BY position DESC LIMIT :count;

-- name: by_two
-- As by_one, for two needles.
SELECT position FROM words
WHERE position < :before AND (CAST(:session_id AS TEXT) IS NULL OR session_id = :session_id)
  AND folded LIKE ANY (CAST(:a AS TEXT[])) AND folded LIKE ANY (CAST(:b AS TEXT[]))
ORDER BY position DESC LIMIT :count;

-- name: by_three
-- As by_one, for three needles.
SELECT position FROM words
WHERE position < :before AND (CAST(:session_id AS TEXT) IS NULL OR session_id = :session_id)
  AND folded LIKE ANY (CAST(:a AS TEXT[])) AND folded LIKE ANY (CAST(:b AS TEXT[]))
  AND folded LIKE ANY (CAST(:c AS TEXT[]))
ORDER BY position DESC LIMIT :count;
