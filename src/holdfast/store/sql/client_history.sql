-- name: add
-- Stores the hash of what was shown up to an event; an existing row stays.
INSERT INTO history (session_id, seq, hash, caller, family, reply)
VALUES (:session, :seq, :hash, :caller, :family, :reply)
ON CONFLICT (session_id, seq) DO NOTHING;

-- name: find_newest
-- The last position of a session, up to an event.
SELECT session_id, seq, hash, caller, family FROM history
WHERE session_id = :session AND seq <= :upto
ORDER BY seq DESC LIMIT 1;

-- name: delete_after
-- Deletes the positions after a rewind.
DELETE FROM history WHERE session_id = :session AND seq > :seq;

-- name: copy
-- Copies the positions of the shared part of the log to a fork.
INSERT INTO history (session_id, seq, hash, caller, family, reply)
SELECT :id, seq, hash, caller, family, reply FROM history
WHERE session_id = :parent AND seq <= :upto;

-- name: find_families
-- The first and the last family with this transcript of a caller; the same if there is only one.
SELECT
  (SELECT min(family) FROM history WHERE hash = :hash AND caller = :caller),
  (SELECT max(family) FROM history WHERE hash = :hash AND caller = :caller);

-- name: list_in_family
-- The positions of this transcript in a family, newest session first.
SELECT history.session_id, history.seq, history.hash, history.caller, history.family
FROM history JOIN session ON session.id = history.session_id
WHERE history.hash = :hash AND history.caller = :caller AND history.family = :family AND session.trashed_at IS NULL
ORDER BY history.session_id DESC, history.seq DESC
LIMIT :limit;

-- name: list_known
-- Those of the hashes (a JSON list) that a caller has anywhere.
SELECT given.value FROM json_each(:hashes) AS given
WHERE EXISTS (SELECT 1 FROM history WHERE history.hash = given.value AND history.caller = :caller);

-- name: list_known_in_family
-- Those of the hashes (a JSON list) that are in a family.
SELECT given.value FROM json_each(:hashes) AS given
WHERE EXISTS (
  SELECT 1 FROM history
  WHERE history.hash = given.value AND history.caller = :caller AND history.family = :family
);

-- name: list_ends_in_family
-- The last position of each session of a family. Every session has a row with the empty hash, where it begins.
SELECT (SELECT newest.hash FROM history AS newest WHERE newest.session_id = start.session_id ORDER BY newest.seq DESC LIMIT 1)
FROM history AS start
WHERE start.hash = '' AND start.caller = :caller AND start.family = :family;

-- name: list_of_caller
-- The positions of this transcript of a caller in any family, newest session first.
SELECT history.session_id, history.seq, history.hash, history.caller, history.family
FROM history JOIN session ON session.id = history.session_id
WHERE history.hash = :hash AND history.caller = :caller AND session.trashed_at IS NULL
ORDER BY history.session_id DESC, history.seq DESC
LIMIT :limit;

-- name: list_by_reply
-- The last positions of sessions of a caller that end with this reply, newest session first.
SELECT history.session_id, history.seq, history.hash, history.caller, history.family
FROM history JOIN session ON session.id = history.session_id
WHERE history.reply = :reply AND history.caller = :caller AND session.trashed_at IS NULL
  AND NOT EXISTS (
    SELECT 1 FROM history AS later WHERE later.session_id = history.session_id AND later.seq > history.seq
  )
ORDER BY history.session_id DESC
LIMIT :limit;

-- name: find_nth_newest
-- The position this many turns before the last one of a session.
SELECT seq FROM history WHERE session_id = :session ORDER BY seq DESC LIMIT 1 OFFSET :back;

-- name: list_known_in_session
-- Those of the hashes (a JSON list) that are positions of a session, with their events.
SELECT history.hash, history.seq FROM history
WHERE history.session_id = :session AND history.hash IN (SELECT given.value FROM json_each(:hashes) AS given);
