"""Slash commands, shared by the chat and the messaging platforms: one registry, one behaviour."""
