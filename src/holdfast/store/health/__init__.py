"""Health checks of a store, and whether it was found damaged."""
