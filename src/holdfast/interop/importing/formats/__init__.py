"""Readers of other agents' session files, one module per program."""
