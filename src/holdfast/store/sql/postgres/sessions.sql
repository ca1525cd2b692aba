-- name: erase_words
-- Behind the session itself: whoever was just adding words to it has finished by then, and nobody can begin.
DELETE FROM words WHERE session_id = :id;
