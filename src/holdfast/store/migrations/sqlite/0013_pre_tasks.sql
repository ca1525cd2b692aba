-- How the background tasks of a worker were doing at its last beat, as JSON.
ALTER TABLE worker ADD COLUMN tasks TEXT NOT NULL DEFAULT '[]';
