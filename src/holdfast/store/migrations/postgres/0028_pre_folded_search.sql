-- The search index has no accents any more. It is built anew from the log.
DELETE FROM words_state;
TRUNCATE words;
