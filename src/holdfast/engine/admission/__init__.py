"""Admission: commits a message or a client's request before anything else happens to it."""
