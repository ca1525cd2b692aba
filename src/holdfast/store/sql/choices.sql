-- name: put
INSERT INTO pending_choice (channel, person, command, answers, at) VALUES (:channel, :person, :command, :answers, :at)
ON CONFLICT (channel, person) DO UPDATE SET command = excluded.command, answers = excluded.answers, at = excluded.at;

-- name: get
SELECT command, answers, at FROM pending_choice WHERE channel = :channel AND person = :person;

-- name: delete
DELETE FROM pending_choice WHERE channel = :channel AND person = :person;
