"""The dashboard: pages for people, rendered on the server, that show every session and let one act on it."""
