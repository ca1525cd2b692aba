"""Web search services."""
