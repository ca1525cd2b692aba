-- A hash of the last reply of each turn alone, to recognise a client that sends only the end of its history, or a revised one.
ALTER TABLE history ADD COLUMN reply TEXT NOT NULL DEFAULT '';

CREATE INDEX history_reply ON history (reply, caller, session_id);
