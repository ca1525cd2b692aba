-- name: free
-- PostgreSQL uses the space of deleted rows again by itself (autovacuum) and has nothing to give back by hand.
SELECT 0, 1;

-- name: reclaim
SELECT 0;
