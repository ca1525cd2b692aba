"""Other systems, each in its own virtual environment under `build/peers`, measured beside Holdfast."""
