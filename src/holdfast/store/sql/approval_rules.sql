-- name: add
INSERT INTO approval_rule (id, requester, tool, kind, pattern, workdir, reasons, session_id, created_by, created_at)
VALUES (:id, :requester, :tool, :kind, :pattern, :workdir, :reasons, :session, :by, :at)
ON CONFLICT (id) DO NOTHING;

-- name: list_active
-- Rules that may apply to a call of a tool, oldest first.
SELECT id, requester, tool, kind, pattern, workdir, reasons, session_id, created_by, created_at, revoked_at, revoked_by
FROM approval_rule
WHERE requester = :requester AND tool = :tool AND revoked_at IS NULL
ORDER BY created_at, id;

-- name: list_all
-- All rules, newest first; revoked ones only on request.
SELECT id, requester, tool, kind, pattern, workdir, reasons, session_id, created_by, created_at, revoked_at, revoked_by
FROM approval_rule
WHERE revoked_at IS NULL OR CAST(:revoked AS INTEGER) = 1
ORDER BY created_at DESC, id DESC LIMIT :limit;

-- name: by_prefix
-- The first few rules whose id has a prefix; :after is greater than all of them.
SELECT id FROM approval_rule WHERE id >= :prefix AND id < :after ORDER BY id LIMIT 5;

-- name: get
SELECT id, requester, tool, kind, pattern, workdir, reasons, session_id, created_by, created_at, revoked_at, revoked_by
FROM approval_rule WHERE id = :id;

-- name: revoke
-- No row: there is no such rule, or it was already revoked.
UPDATE approval_rule SET revoked_at = :at, revoked_by = :by WHERE id = :id AND revoked_at IS NULL RETURNING id;
