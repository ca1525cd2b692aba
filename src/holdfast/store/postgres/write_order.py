"""Runs the writes of this process that concern the same key in the order in which they were submitted.

In SQLite one thread runs all writes. A draft that was submitted before its reply must not be written after it. In
PostgreSQL several threads write, and the server knows only which transaction came first. So each write gets a ticket when
it is submitted. Its first statement names its key. There the writes pass in the order of their tickets, and each joins
the queue of its key. A write that waits here holds no lock of the server yet.

A write without a connection names no key. Later writes, which have a connection, wait for it for a limited time. Then it
loses its place and fails without having written anything, because writing it later would break the order.
"""

import threading
from collections import deque
from functools import partial

from holdfast.model.errors import Unavailable
from holdfast.store.database import Value

LIMIT_SECONDS = 30.0
"""How long a write may block later ones before it has named its key: enough for two attempts to connect."""


class WriteConflict(Exception):
    """The write waits for one that has no connection: it must give up its connection and retry."""


class WriteOrder:
    """Thread-safe."""

    def __init__(self, *, limit_seconds: float = LIMIT_SECONDS) -> None:
        self._limit_seconds = limit_seconds
        self._expelled: set[int] = set()
        self._changed = threading.Condition()
        self._last = 0
        self._unnamed: deque[int] = deque()
        self._queues: dict[Value, deque[int]] = {}
        self._names: dict[int, Value] = {}
        self._without_connection: set[int] = set()

    def issue_ticket(self) -> int:
        """A ticket with a higher number than all earlier ones."""
        with self._changed:
            self._last += 1
            self._unnamed.append(self._last)
            return self._last

    def enter(self, ticket: int, name: Value) -> None:
        """Wait until all earlier writes have named their keys, then for those with the same key. A key of None has no queue.

        A write that is retried keeps its place. Raises WriteConflict if an earlier write has no connection, so that it can
        use that of this one. Raises Unavailable if this write has blocked later ones for too long.
        """
        with self._changed:
            self._name(ticket, name)
            joined = self._names[ticket]
            if joined is not None:
                self._changed.wait_for(lambda: self._queues[joined][0] == ticket or self._must_give_way(ticket))
                if self._queues[joined][0] != ticket:
                    raise WriteConflict

    def name(self, ticket: int, name: Value) -> None:
        """Wait until all earlier writes have named their keys, and join the queue of this key. Raises like `enter`."""
        with self._changed:
            self._name(ticket, name)

    def is_next(self, ticket: int) -> bool:
        """Whether a write that has named its key need not wait for others with the same key."""
        with self._changed:
            name = self._names[ticket]
            return name is None or self._queues[name][0] == ticket

    def _name(self, ticket: int, name: Value) -> None:
        self._without_connection.discard(ticket)
        if ticket in self._expelled:
            raise Unavailable(
                f"no connection to the store for {self._limit_seconds:.0f} s; nothing was written; try again"
            )
        if ticket in self._names:
            return
        self._wait_for_earlier(ticket)
        self._unnamed.popleft()
        self._names[ticket] = name
        if name is not None:
            self._queues.setdefault(name, deque()).append(ticket)
        self._changed.notify_all()

    def _wait_for_earlier(self, ticket: int) -> None:
        """Wait until all earlier writes have entered or lost their place."""
        while self._unnamed[0] != ticket:
            if not self._changed.wait_for(partial(self._has_moved, self._unnamed[0], ticket), self._limit_seconds):
                self._expelled.add(self._unnamed.popleft())
                self._changed.notify_all()
            elif self._unnamed[0] != ticket and self._must_give_way(ticket):
                raise WriteConflict

    def _has_moved(self, first: int, ticket: int) -> bool:
        return self._unnamed[0] != first or self._must_give_way(ticket)

    def _must_give_way(self, ticket: int) -> bool:
        return any(before < ticket for before in self._without_connection)

    def report_no_connection(self, ticket: int) -> None:
        """Report that a write cannot get a connection: until it enters, later writes give way."""
        with self._changed:
            self._without_connection.add(ticket)
            self._changed.notify_all()

    def leave(self, ticket: int) -> None:
        """Remove a write that has ended or was never started."""
        with self._changed:
            self._without_connection.discard(ticket)
            self._expelled.discard(ticket)
            if ticket in self._unnamed:
                self._unnamed.remove(ticket)
            name = self._names.pop(ticket, None)
            if name is not None:
                self._queues[name].remove(ticket)
                if not self._queues[name]:
                    del self._queues[name]
            self._changed.notify_all()
