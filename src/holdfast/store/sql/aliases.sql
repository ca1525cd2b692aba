-- name: add
-- Adds a permanent alias of a session; an existing one stays.
INSERT INTO alias (alias, session_id, at) VALUES (:alias, :session, :at)
ON CONFLICT (alias) DO NOTHING
RETURNING session_id;

-- name: find
SELECT session_id FROM alias WHERE alias = :alias;

-- name: find_alias_and_channel
-- The session of an alias, and the current session of a channel.
SELECT (SELECT session_id FROM alias WHERE alias = :alias), (SELECT session_id FROM channel WHERE channel = :channel);

-- name: list_by_session
SELECT alias FROM alias WHERE session_id = :session ORDER BY alias;

-- name: set_channel_session
-- Makes a session the current one of a channel.
INSERT INTO channel (channel, session_id, at) VALUES (:channel, :session, :at)
ON CONFLICT (channel) DO UPDATE SET session_id = excluded.session_id, at = excluded.at;

-- name: get_channel_session
-- The current session of a channel.
SELECT session_id FROM channel WHERE channel = :channel;

-- name: list_channels
-- The current sessions of the channels whose names have a prefix, without those in the trash.
SELECT channel.channel, session.id, session.seq, session.updated_at
FROM channel JOIN session ON session.id = channel.session_id
WHERE channel.channel >= :prefix AND channel.channel < :after AND session.trashed_at IS NULL
ORDER BY channel.channel;
