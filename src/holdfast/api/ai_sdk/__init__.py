"""Chats of the Vercel AI SDK: its UI message stream protocol, resumable from the log."""
