"""`holdfast sessions` and its subcommands."""
