"""Resets sessions that were idle or that a daily schedule ends."""
