-- name: get
SELECT * FROM person WHERE platform = :platform AND person = :person;

-- name: ask
-- A stranger knocks: they get a code by which the owner can let them in.
INSERT INTO person (platform, person, name, code, state, at) VALUES (:platform, :person, :name, :code, 'asked', :at)
ON CONFLICT (platform, person) DO UPDATE SET code = excluded.code, at = excluded.at, name = excluded.name
WHERE person.state = 'asked'
RETURNING *;

-- name: count_asked
SELECT count(*) FROM person WHERE platform = :platform AND state = 'asked' AND at > :since;

-- name: by_code
SELECT * FROM person WHERE code = :code AND state = 'asked';

-- name: let_in
UPDATE person SET state = 'allowed', at = :at WHERE platform = :platform AND person = :person RETURNING *;

-- name: turn_out
DELETE FROM person WHERE platform = :platform AND person = :person RETURNING person;

-- name: all
SELECT * FROM person ORDER BY platform, person;

-- name: busy
SELECT busy FROM seat WHERE channel = :channel;

-- name: set_busy
INSERT INTO seat (channel, busy) VALUES (:channel, :busy) ON CONFLICT (channel) DO UPDATE SET busy = excluded.busy;
