"""Reads what the model is told besides the conversation: project rules, skills, remembered facts and the environment."""
