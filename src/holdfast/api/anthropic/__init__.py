"""Anthropic's Messages API on the same sessions as the other APIs."""
