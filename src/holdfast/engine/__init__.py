"""The agent: admits input, runs turns, and recovers what a crash left. Decisions are pure functions; each is committed before it is acted on."""
