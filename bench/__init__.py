"""Measures Holdfast beside its baselines, in one run, and says which of the goals are met."""
