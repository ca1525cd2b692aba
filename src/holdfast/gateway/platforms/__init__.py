"""Messaging platforms, one module each, and the registry that opens them."""
