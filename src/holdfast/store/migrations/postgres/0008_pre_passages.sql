-- The search index keeps the words of several events of a session in one row: what is longer than two kilobytes is
-- compressed by the server, and events that lie together share most of their trigrams. Before the words of an event stands
-- its number and chr(31), between two events chr(30). The index is built anew from the log.
DROP TABLE words;
DELETE FROM words_state;

CREATE TABLE words (
  session_id TEXT COLLATE "C" NOT NULL,
  position BIGINT NOT NULL,
  first_position BIGINT NOT NULL,
  letters BIGINT NOT NULL,
  folded TEXT NOT NULL,
  PRIMARY KEY (session_id, position)
);

CREATE INDEX words_position ON words (position);
CREATE INDEX words_growing ON words (session_id) WHERE letters < 8192;
