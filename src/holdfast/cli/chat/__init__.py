"""The chat: in a terminal the user can type at any time; elsewhere it works line by line."""
