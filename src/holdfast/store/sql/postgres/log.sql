-- name: last_position
-- The newest position below which nothing can become visible any more, to reads that begin after this one; NULL in an
-- empty store.
SELECT nullif(settled_position(), 0);
