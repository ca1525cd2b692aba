"""The OpenAI-compatible API: Chat Completions and Responses."""
