"""The agent itself: admits input, drives turns, and recovers what a crash left behind. Decides pure, acts at the edge, commits between."""
