"""Facts: ids, messages, events, sessions and errors. No I/O and no clock."""
