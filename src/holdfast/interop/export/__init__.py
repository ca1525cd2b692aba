"""Writes sessions to files: JSON lines that can be imported again, and pages for people."""
