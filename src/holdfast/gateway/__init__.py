"""Messaging platforms as a face: messages come in once, replies go out for sure."""
