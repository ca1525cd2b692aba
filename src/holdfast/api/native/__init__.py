"""Holdfast's own HTTP API: sessions, turns, events, search, processes, activity."""
