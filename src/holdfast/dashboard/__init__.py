"""The dashboard: server-rendered pages that show every session and offer actions on it."""
