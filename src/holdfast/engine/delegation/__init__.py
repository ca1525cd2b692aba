"""Child sessions: creating them for a tool call, and starting, stopping and waking what belongs to them."""
