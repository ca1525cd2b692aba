-- name: next_number
-- The number of the next fact. On PostgreSQL the key lets one transaction at a time add facts.
SELECT coalesce(max(number), 0) + 1 FROM memory_fact WHERE :key <> '';

-- name: add
INSERT INTO memory_fact (number, first, owner, scope, project, text, author, session_id, turn_id, call_id, seq, sources, at)
VALUES (:number, :first, :owner, :scope, :project, :text, :author, :of, :turn, :call, :seq, :sources, :at);

-- name: replace
-- Marks a version as superseded. No row: it already is, or it was forgotten.
UPDATE memory_fact SET replaced_by = :number
WHERE number = :before AND replaced_by IS NULL AND forgotten_at IS NULL
RETURNING number;

-- name: forget
-- Removes the text of all versions of a fact.
UPDATE memory_fact SET text = '', sources = '[]', forgotten_at = :at, forgotten_by = :person_name
WHERE first = :first AND forgotten_at IS NULL AND :key <> '';

-- name: get
SELECT * FROM memory_fact WHERE number = :number;

-- name: get_by_call
SELECT * FROM memory_fact WHERE session_id = :of AND turn_id = :turn AND call_id = :call AND call_id <> '';

-- name: find_text
-- A current fact with the same text and scope.
SELECT * FROM memory_fact
WHERE owner = :owner AND scope = :scope AND project = :project AND text = :text
  AND replaced_by IS NULL AND forgotten_at IS NULL
ORDER BY number LIMIT 1;

-- name: list_visible
-- The current facts for a person in a project, with those for everybody, oldest first.
SELECT * FROM memory_fact
WHERE replaced_by IS NULL AND forgotten_at IS NULL
  AND owner IN ('', :owner) AND project IN ('', :project)
ORDER BY number;

-- name: list_versions
-- All versions of a fact, oldest first.
SELECT * FROM memory_fact WHERE first = :first ORDER BY number;

-- name: list_page
-- Facts before a number, newest first. An empty :owner, :scope or :project selects all; with :history = 1 also old versions.
SELECT * FROM memory_fact
WHERE number < :before
  AND (:everyone = 1 OR owner = :owner OR owner = '')
  AND (:scope = '' OR scope = :scope)
  AND (:project = '' OR project = :project OR project = '')
  AND (:history = 1 OR (replaced_by IS NULL AND forgotten_at IS NULL))
ORDER BY number DESC LIMIT :limit;

-- name: count_current
SELECT count(*) FROM memory_fact
WHERE owner = :owner AND scope = :scope AND project = :project AND replaced_by IS NULL AND forgotten_at IS NULL;

-- name: count_versions
SELECT count(*) FROM memory_fact WHERE first = :first;

-- name: count_of_turn
SELECT count(*) FROM memory_fact WHERE session_id = :of AND turn_id = :turn AND call_id <> '';
