"""Items of other agent frameworks."""
