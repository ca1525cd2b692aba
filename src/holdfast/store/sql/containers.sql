-- name: add
-- Records a container before the first command runs in it.
INSERT INTO container (id, session_id, name, image, engine, settings_hash, host, created_at)
VALUES (:id, :session, :name, :image, :engine, :settings_hash, :host, :at);

-- name: current
-- The container of a session.
SELECT id, session_id, name, image, engine, settings_hash, host, created_at FROM container
WHERE session_id = :session AND ended_at IS NULL;

-- name: ended
-- A container whose end is recorded.
SELECT id FROM container WHERE id = :id AND ended_at IS NOT NULL;

-- name: list_current
-- The containers of a machine that have not ended, and whether their session has.
SELECT c.id, c.session_id, c.name, c.image, c.engine, c.settings_hash, c.host, c.created_at,
  s.ended_at IS NOT NULL OR s.trashed_at IS NOT NULL
FROM container AS c JOIN session AS s ON s.id = c.session_id
WHERE c.host = :host AND c.ended_at IS NULL ORDER BY c.id;

-- name: end
-- Records once that a container is gone.
UPDATE container SET ended_at = :at, end_reason = :reason WHERE id = :id AND ended_at IS NULL RETURNING session_id;
