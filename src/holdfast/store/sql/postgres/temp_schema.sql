-- name: create
CREATE SCHEMA {schema};

-- name: drop
DROP SCHEMA {schema} CASCADE;
