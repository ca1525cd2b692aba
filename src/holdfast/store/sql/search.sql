-- name: get_last_position
-- In the store: the highest position ever assigned to an event, also if it was pruned; no row before the first.
SELECT seq FROM sqlite_sequence WHERE name = 'event';

-- name: get_event_at
-- In the store: which event is at a position, without its text.
SELECT session_id, seq, at FROM event WHERE position = :position;

-- name: configure
-- In the index, like all below. A power cut may lose the newest commits, which are then indexed again.
PRAGMA journal_mode = WAL;
PRAGMA synchronous = NORMAL;
PRAGMA journal_size_limit = 4194304;
PRAGMA trusted_schema = OFF;
PRAGMA cell_size_check = ON;

-- name: create
-- Trigrams by event, without positions and without the text, which is in the store; `term` lists them. Characters by event,
-- for words too short to have a trigram. `session` and `about` hold marks of the session, the role and the tools.
CREATE VIRTUAL TABLE gram USING fts5(
  text, session, about, tokenize = 'trigram case_sensitive 1', content = '', contentless_delete = 1, detail = none
);
CREATE VIRTUAL TABLE term USING fts5vocab(gram, instance);
CREATE VIRTUAL TABLE letter USING fts5(
  letters, session, tokenize = 'ascii', content = '', contentless_delete = 1, detail = none
);
CREATE TABLE state (
  one INTEGER NOT NULL PRIMARY KEY CHECK (one = 1),
  store_id TEXT NOT NULL,
  position INTEGER NOT NULL,
  mark TEXT NOT NULL
) STRICT;
PRAGMA user_version = 2;

-- name: get_state
-- Which store is indexed, up to which position, and which event is there. No row: the index is new.
SELECT store_id, position, mark FROM state;

-- name: put_state
-- Records how far the store is indexed.
INSERT INTO state (one, store_id, position, mark) VALUES (1, :store_id, :position, :mark)
ON CONFLICT (one) DO UPDATE SET store_id = excluded.store_id, position = excluded.position, mark = excluded.mark;

-- name: add_grams
INSERT INTO gram (rowid, text, session, about) VALUES (:position, :text, :session, :about);

-- name: add_letters
INSERT INTO letter (rowid, letters, session) VALUES (:position, :letters, :session);

-- name: delete_grams
DELETE FROM gram WHERE rowid = :position;

-- name: delete_letters
DELETE FROM letter WHERE rowid = :position;

-- name: find_by_grams
-- Events that may match, newest first.
SELECT rowid FROM gram WHERE gram MATCH :expression AND rowid < :before ORDER BY rowid DESC LIMIT :count;

-- name: find_by_letters
-- Events that may match, newest first.
SELECT rowid FROM letter WHERE letter MATCH :expression AND rowid < :before ORDER BY rowid DESC LIMIT :count;

-- name: list_terms
-- The terms from :low to :high. Each step seeks the next one: a scan would read every event of the previous one.
WITH RECURSIVE found (text) AS (
  SELECT (SELECT term FROM term WHERE term >= :low AND term <= :high ORDER BY term LIMIT 1)
  UNION ALL
  SELECT (SELECT term FROM term WHERE term >= found.text || char(1) AND term <= :high ORDER BY term LIMIT 1)
  FROM found WHERE found.text IS NOT NULL
)
SELECT text FROM found WHERE text IS NOT NULL LIMIT :count;
