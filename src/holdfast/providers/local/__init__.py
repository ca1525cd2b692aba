"""The embedded model, which runs on this machine without a server."""
