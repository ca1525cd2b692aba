"""Compaction: replaces old messages of a context with a summary, and logs what was replaced."""
