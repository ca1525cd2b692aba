"""Reads what the model is told besides the conversation: project rules and the environment."""
