"""Real processes that are killed, starved of disk, cut off from power or stopped while they write."""
