"""Live news of the sessions this worker runs, for those who watch.

Committed events are published after their commit and are never dropped while somebody watches; live
text may be folded together for a reader who falls behind, because the log has it all in the end. A
publisher never waits.
"""

import asyncio
from collections import deque
from typing import Literal

import msgspec

from holdfast.model.event import Entry


class Live(msgspec.Struct, frozen=True):
    """Something that is not in the log: words as they are streamed, or word that the stream began anew."""

    turn_id: str
    kind: Literal["text", "reasoning", "restarted"]
    text: str


class Failed(msgspec.Struct, frozen=True):
    """A turn stopped and could not say so in the log; without a turn id, every turn of the session is concerned."""

    error: Exception
    turn_id: str | None = None


News = Entry | Live | Failed


class Subscription:
    """What one watcher has not read yet."""

    def __init__(self) -> None:
        self._news: deque[News] = deque()
        self._bell = asyncio.Event()
        self._must_look = False

    def put(self, item: News) -> None:
        last = self._news[-1] if self._news else None
        if isinstance(item, Live) and isinstance(last, Live) and (item.turn_id, item.kind) == (last.turn_id, last.kind):
            self._news[-1] = Live(item.turn_id, item.kind, last.text + item.text)
        else:
            self._news.append(item)
        self._bell.set()

    def ring(self) -> None:
        """Wake the watcher without news, to look for itself."""
        self._must_look = True
        self._bell.set()

    async def wait(self) -> bool:
        """Wait for news; whether the watcher had better look into the store as well."""
        await self._bell.wait()
        self._bell.clear()
        must_look, self._must_look = self._must_look, False
        return must_look

    def take(self) -> News | None:
        return self._news.popleft() if self._news else None


class Bus:
    def __init__(self) -> None:
        self._watchers: dict[str, set[Subscription]] = {}

    def subscribe(self, session_id: str) -> Subscription:
        subscription = Subscription()
        self._watchers.setdefault(session_id, set()).add(subscription)
        return subscription

    def unsubscribe(self, session_id: str, subscription: Subscription) -> None:
        watchers = self._watchers.get(session_id, set())
        watchers.discard(subscription)
        if not watchers:
            self._watchers.pop(session_id, None)

    def ring(self, session_id: str) -> None:
        """Have the watchers look into the store for themselves."""
        for subscription in self._watchers.get(session_id, ()):
            subscription.ring()

    def publish(self, session_id: str, item: News) -> None:
        for subscription in self._watchers.get(session_id, ()):
            subscription.put(item)
