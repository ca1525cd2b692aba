"""The SQLite driver."""
