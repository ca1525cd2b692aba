"""How many requests were answered, and how."""

from collections import Counter


class Tally:
    """Counts since the start of the worker. There are few methods and few statuses, so this never grows large."""

    METHODS = ("GET", "POST", "PATCH", "DELETE", "OPTIONS", "HEAD", "PUT")

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.streams = 0
        """Streams of events that are open."""

    def count(self, method: str, status: int) -> None:
        """One more request; status 0 for a client that left before it was answered."""
        self.requests[method if method in self.METHODS else "other", status] += 1
