-- name: add
-- Keeps what had been shown at a place in a log; what was kept for that place before stays.
INSERT INTO history (session_id, seq, hash, caller, family)
VALUES (:session, :seq, :hash, :caller, :family)
ON CONFLICT (session_id, seq) DO NOTHING;

-- name: newest
-- The last place in a session's log that is kept.
SELECT session_id, seq, hash, caller, family FROM history WHERE session_id = :session ORDER BY seq DESC LIMIT 1;

-- name: drop_after
-- Forgets the places of what was taken back.
DELETE FROM history WHERE session_id = :session AND seq > :seq;

-- name: copy
-- Gives a fork the places of the part it shares with its parent.
INSERT INTO history (session_id, seq, hash, caller, family)
SELECT :id, seq, hash, caller, family FROM history
WHERE session_id = :parent AND seq <= :upto;

-- name: families
-- The first and the last of the families in which a caller was shown just this; they are the same if there is only one.
SELECT
  (SELECT min(family) FROM history WHERE hash = :hash AND caller = :caller),
  (SELECT max(family) FROM history WHERE hash = :hash AND caller = :caller);

-- name: in_family
-- Where a family was shown just this, newest session first.
SELECT history.session_id, history.seq, history.hash, history.caller, history.family
FROM history JOIN session ON session.id = history.session_id
WHERE history.hash = :hash AND history.caller = :caller AND history.family = :family AND session.trashed_at IS NULL
ORDER BY history.session_id DESC, history.seq DESC
LIMIT :limit;
