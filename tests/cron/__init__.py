"""Schedules: each time one is due has one end."""
