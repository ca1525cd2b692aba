-- name: list_known
SELECT given.value FROM json_array_elements_text(CAST(:hashes AS JSON)) AS given(value)
WHERE EXISTS (SELECT 1 FROM history WHERE history.hash = given.value AND history.caller = :caller);

-- name: list_known_in_family
SELECT given.value FROM json_array_elements_text(CAST(:hashes AS JSON)) AS given(value)
WHERE EXISTS (
  SELECT 1 FROM history
  WHERE history.hash = given.value AND history.caller = :caller AND history.family = :family
);

-- name: list_known_in_session
SELECT history.hash, history.seq FROM history
WHERE history.session_id = :session
  AND history.hash IN (SELECT given.value FROM json_array_elements_text(CAST(:hashes AS JSON)) AS given(value));
