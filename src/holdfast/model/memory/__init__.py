"""Facts that sessions remember for later sessions."""
