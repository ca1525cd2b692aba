"""What a worker remembers of sessions between their turns, so that a log is not read again for each of them.

Nothing is decided by it: whoever takes up a session reads what has been added since.
"""

from collections import OrderedDict

from holdfast.engine.hand import Hand, Memory

REMEMBERED = 256
"""Sessions whose log is kept in memory between turns."""
REMEMBERED_EVENTS = 100_000
"""Events kept in memory over all of them: some hundred megabytes at the worst."""


class Memories:
    """The newest, up to a limit."""

    def __init__(self) -> None:
        self._kept: OrderedDict[str, tuple[Memory, int]] = OrderedDict()
        """Each with how many events it is."""
        self._events = 0
        """The events of all of them."""

    def keep(self, hand: Hand) -> None:
        self.take(hand.id)
        self._kept[hand.id] = Memory(hand.entries, hand.context), len(hand.entries)
        self._events += len(hand.entries)
        while len(self._kept) > REMEMBERED or self._events > REMEMBERED_EVENTS:
            self.take(next(iter(self._kept)))

    def take(self, session_id: str) -> Memory | None:
        """What is remembered of the session, which is then no longer kept here."""
        memory, count = self._kept.pop(session_id, (None, 0))
        self._events -= count
        return memory
