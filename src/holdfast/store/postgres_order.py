"""Writes of this process that are about the same thing are done in the order in which they were given.

In SQLite they are, because one thread writes them all; and a draft that was given before the reply it belongs to must
not be written after it. Here several threads write, and PostgreSQL knows only who came first to it. So each write draws
a ticket when it is given. What it is about shows with its first statement: there it passes a turnstile, in the order of
the tickets, and joins the line of those who named the same thing. Whoever waits here holds no lock of the server yet.
"""

import threading
from collections import deque

from holdfast.store.database import Value


class GiveWay(Exception):
    """The write that waits has to leave its connection to one that it waits for, and to try again."""


class Order:
    """May be used from any thread."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._last = 0
        self._outside: deque[int] = deque()
        self._lines: dict[Value, deque[int]] = {}
        self._names: dict[int, Value] = {}
        self._begging: set[int] = set()

    def draw(self) -> int:
        """A ticket, behind all that were drawn before."""
        with self._changed:
            self._last += 1
            self._outside.append(self._last)
            return self._last

    def enter(self, ticket: int, name: Value) -> None:
        """Wait for those before who have named nothing yet, and then for those who named the same. None names nothing.

        A write that is tried again keeps its place. Raises GiveWay if one before waits for a connection: those who
        wait for it here have some.
        """
        with self._changed:
            self._begging.discard(ticket)
            if ticket in self._outside:
                self._changed.wait_for(lambda: self._outside[0] == ticket or self._is_begged(ticket))
                if self._outside[0] != ticket:
                    raise GiveWay
                self._outside.popleft()
                self._names[ticket] = name
                if name is not None:
                    self._lines.setdefault(name, deque()).append(ticket)
                self._changed.notify_all()
            joined = self._names[ticket]
            if joined is not None:
                self._changed.wait_for(lambda: self._lines[joined][0] == ticket or self._is_begged(ticket))
                if self._lines[joined][0] != ticket:
                    raise GiveWay

    def _is_begged(self, ticket: int) -> bool:
        return any(before < ticket for before in self._begging)

    def beg(self, ticket: int) -> None:
        """Say that a write cannot get a connection: until it enters, those behind it give way."""
        with self._changed:
            self._begging.add(ticket)
            self._changed.notify_all()

    def leave(self, ticket: int) -> None:
        """The write is over, or was never begun."""
        with self._changed:
            self._begging.discard(ticket)
            if ticket in self._outside:
                self._outside.remove(ticket)
            name = self._names.pop(ticket, None)
            if name is not None:
                self._lines[name].remove(ticket)
                if not self._lines[name]:
                    del self._lines[name]
            self._changed.notify_all()
