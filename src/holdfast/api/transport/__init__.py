"""Middleware for every request: keys, hosts, limits and logging."""
