"""The command line: a face like any other. It loads what a command needs, and only then."""
