"""The HTTP API: OpenAI's Chat Completions and Responses, and our own routes, over durable sessions."""
