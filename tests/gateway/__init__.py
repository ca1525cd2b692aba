"""The gateway: inbound messages are deduplicated, replies are delivered at least once."""
