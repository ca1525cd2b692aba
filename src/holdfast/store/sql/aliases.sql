-- name: add
-- Lets another name stand for a session, for ever: the first meaning wins.
INSERT INTO alias (alias, session_id, at) VALUES (:alias, :session, :at)
ON CONFLICT (alias) DO NOTHING
RETURNING session_id;

-- name: find
SELECT session_id FROM alias WHERE alias = :alias;

-- name: of_session
SELECT alias FROM alias WHERE session_id = :session ORDER BY alias;

-- name: point_channel
-- Makes a session the current one of a channel.
INSERT INTO channel (channel, session_id, at) VALUES (:channel, :session, :at)
ON CONFLICT (channel) DO UPDATE SET session_id = excluded.session_id, at = excluded.at;

-- name: current
-- The current session of a channel.
SELECT session_id FROM channel WHERE channel = :channel;
