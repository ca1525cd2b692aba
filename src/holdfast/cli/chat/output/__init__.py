"""Draws the chat: the screen, the transcript, Markdown, diffs and the status line."""
