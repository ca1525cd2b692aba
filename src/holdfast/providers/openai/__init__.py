"""OpenAI's Chat Completions API and servers compatible with it."""
