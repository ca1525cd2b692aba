"""Many prompts from a file, each in a session of its own, with one line of results for each."""
