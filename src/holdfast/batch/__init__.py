"""Runs the prompts of a file, each in its own session, and writes one result line for each."""
