-- Since when a worker that still lives has been about to leave: what it gives back is no sign of a death.
ALTER TABLE worker ADD COLUMN leaving_at INTEGER;
