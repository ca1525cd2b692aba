"""Sessions in other forms: as outsiders see them, as files, and from the logs of others."""
