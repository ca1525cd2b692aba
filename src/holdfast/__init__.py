"""Holdfast: an AI-agent runtime whose sessions survive anything."""

__version__ = "0.1.0"
