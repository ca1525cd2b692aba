"""Imports sessions: Holdfast's own exports and the logs of other agents."""
