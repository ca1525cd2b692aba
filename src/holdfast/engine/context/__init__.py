"""The context of a session: what the model is sent, and how large it is."""
