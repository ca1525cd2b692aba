"""Tells the sender of a request whether the server rejected it for lack of a login.

All requests of a server share one authentication. The library authenticates a request in the context of its sender.
"""

import contextlib
from collections.abc import Iterator
from contextvars import ContextVar


class Rejection:
    """What the server said to the requests of one block."""

    def __init__(self) -> None:
        self.first: str | None = None
        """Why it rejected the first request; empty if it accepted it, None if it did not answer."""
        self.last = ""
        """Why it rejected the last request; empty if it did not."""


_current: ContextVar[Rejection | None] = ContextVar("mcp_rejection", default=None)


def watch_login() -> Rejection:
    """Find out whether the requests that are sent in this context are rejected."""
    found = Rejection()
    _current.set(found)
    return found


@contextlib.contextmanager
def watched_login() -> Iterator[Rejection]:
    """Find out whether the requests that are sent in the block are rejected."""
    before = _current.get()
    try:
        yield watch_login()
    finally:
        _current.set(before)


def report_login(problem: str) -> None:
    """Why the server rejected a request; empty if it accepted it."""
    found = _current.get()
    if found is None:
        return
    if found.first is None:
        found.first = problem
    found.last = problem
