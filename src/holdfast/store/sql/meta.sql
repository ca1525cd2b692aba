-- name: get
SELECT value FROM meta WHERE key = :key;

-- name: put
INSERT INTO meta (key, value) VALUES (:key, :value)
ON CONFLICT (key) DO UPDATE SET value = excluded.value;

-- name: add
-- Adds a fact. No row: it exists.
INSERT INTO meta (key, value) VALUES (:key, :value)
ON CONFLICT (key) DO NOTHING
RETURNING key;

-- name: replace
-- Replaces a fact. No row: it is not the expected one.
UPDATE meta SET value = :value WHERE key = :key AND value = :expected
RETURNING key;
