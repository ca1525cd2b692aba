"""Matrix: the connection to a homeserver, and end-to-end encryption."""
