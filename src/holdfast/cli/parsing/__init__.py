"""Parses the command line: groups of commands, the command that is left out, session references, completion by a shell."""
