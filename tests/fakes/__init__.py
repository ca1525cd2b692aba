"""Stand-ins written by hand, for what cannot be had for real."""
