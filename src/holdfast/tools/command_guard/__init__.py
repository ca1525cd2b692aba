"""Decides whether a shell command needs approval: parses it and compares it with a list of risks."""
