"""The command line. Each command loads only the modules that it needs."""
