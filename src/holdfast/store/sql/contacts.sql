-- name: get
SELECT * FROM person WHERE platform = :platform AND person = :person;

-- name: request_pairing
-- Stores or renews a pairing request with its code.
INSERT INTO person (platform, person, name, code, state, at) VALUES (:platform, :person, :name, :code, 'asked', :at)
ON CONFLICT (platform, person) DO UPDATE SET code = excluded.code, at = excluded.at, name = excluded.name
WHERE person.state = 'asked'
RETURNING *;

-- name: count_pairing_requests
SELECT count(*) FROM person WHERE platform = :platform AND state = 'asked' AND at > :since;

-- name: find_by_code
SELECT * FROM person WHERE code = :code AND state = 'asked';

-- name: approve
UPDATE person SET state = 'allowed', at = :at WHERE platform = :platform AND person = :person RETURNING *;

-- name: revoke
DELETE FROM person WHERE platform = :platform AND person = :person RETURNING person;

-- name: list_all
SELECT * FROM person ORDER BY platform, person;

-- name: get_busy_mode
SELECT busy FROM seat WHERE channel = :channel;

-- name: set_busy_mode
INSERT INTO seat (channel, busy) VALUES (:channel, :busy) ON CONFLICT (channel) DO UPDATE SET busy = excluded.busy;
