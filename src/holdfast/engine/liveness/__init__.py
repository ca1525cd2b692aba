"""Worker liveness: heartbeats, leases, the janitor, and orderly shutdown."""
