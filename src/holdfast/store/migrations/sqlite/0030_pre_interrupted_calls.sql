-- The model that was asked for the unfinished reply. If the worker dies, the reply counts for this model.
ALTER TABLE draft ADD COLUMN called TEXT NOT NULL DEFAULT '';

-- How many of the `unpriced` calls were interrupted: they do not show that the model has no price.
ALTER TABLE usage_day ADD COLUMN interrupted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_pruned ADD COLUMN interrupted INTEGER NOT NULL DEFAULT 0;
ALTER TABLE usage_session ADD COLUMN interrupted INTEGER NOT NULL DEFAULT 0;
