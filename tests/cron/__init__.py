"""Schedules: each slot has exactly one result."""
