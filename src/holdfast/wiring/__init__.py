"""The composition root: builds the store, the engine, the server, the dashboard and the broker from settings."""
