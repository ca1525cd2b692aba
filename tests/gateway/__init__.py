"""The gateway: messages in once, replies out for sure."""
