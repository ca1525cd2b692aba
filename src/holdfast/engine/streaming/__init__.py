"""Streams the events and the text of sessions to watchers."""
