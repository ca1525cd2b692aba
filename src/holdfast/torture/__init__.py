"""The crash suite that users run on their own machine and store: what was tried, lost, doubled and leaked."""
