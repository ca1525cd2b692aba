"""One turn: the loop that calls the model and tools, recovery after a crash, and the session it works on."""
