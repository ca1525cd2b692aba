-- name: add
INSERT INTO share (id, digest, session_id, upto_seq, title, created_at, created_by, expires_at)
VALUES (:id, :digest, :session, :upto, :title, :at, :by, :expires_at);

-- name: find
-- The link with a token, unless it has expired, was revoked, or its session is in the trash.
SELECT share.* FROM share JOIN session ON session.id = share.session_id
WHERE share.digest = :digest AND share.revoked_at IS NULL AND share.expires_at > :at AND session.trashed_at IS NULL;

-- name: list_by_session
-- The links of a session, newest first, also those that no longer work.
SELECT * FROM share WHERE session_id = :session ORDER BY created_at DESC, id DESC;

-- name: by_prefix
-- The first few links whose id has a prefix; :after is greater than all of them.
SELECT id FROM share WHERE id >= :prefix AND id < :after ORDER BY id LIMIT 5;

-- name: get
SELECT * FROM share WHERE id = :id;

-- name: revoke
-- No row: there is no such link, or it was already revoked.
UPDATE share SET revoked_at = :at, revoked_by = :by WHERE id = :id AND revoked_at IS NULL RETURNING id;

-- name: revoke_all
-- Revokes the links of a session that still work.
UPDATE share SET revoked_at = :at, revoked_by = :by
WHERE session_id = :session AND revoked_at IS NULL AND expires_at > :at
RETURNING id;

-- name: list_rewinds
-- The rewinds of a session after an event, also those after it was shared. Both kinds are named for the partial index.
SELECT seq, kind, body FROM event
WHERE session_id = :session AND seq > :after AND kind IN ('plan_changed', 'rewound') AND kind = 'rewound'
ORDER BY seq;

-- name: list_removals
-- The messages of a session that a client removed after an event, also after the session was shared.
SELECT body FROM event WHERE session_id = :session AND seq > :after AND kind = 'message_removed' ORDER BY seq;
