"""The HTTP face: what clients of OpenAI expect, and sessions that survive anything behind it."""
