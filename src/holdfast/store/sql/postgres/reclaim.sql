-- name: get_free_pages
-- PostgreSQL reuses the space of deleted rows (autovacuum); there is nothing to release.
SELECT 0, 1;

-- name: release_pages
SELECT 0;
