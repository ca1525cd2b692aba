"""The crash suite that users run on their own machine and store. It counts lost, doubled and leaked data."""
