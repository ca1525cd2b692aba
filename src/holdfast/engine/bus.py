"""Live news of the sessions this worker runs, for those who watch.

Committed events are published after their commit; live text may be folded together for a reader who falls
behind, because the log has it all in the end. One who falls far behind is sent to the store instead, so that
nothing is kept for a reader who does not read. A publisher never waits.
"""

import asyncio
from collections import deque
from typing import Literal

import msgspec

from holdfast.model.entry import Entry
from holdfast.model.event import ModelSaid


class Live(msgspec.Struct, frozen=True):
    """Something that is not in the log: words as they are streamed, or word that the stream began anew."""

    turn_id: str
    kind: Literal["text", "reasoning", "restarted"]
    text: str
    kept: bool = False
    """Whether the words would survive a crash of their worker: they stand in a draft."""
    at: int = 0
    """How many characters of the same reply came before these."""
    behind: int = 0
    """The number of the last event that was known when they were said; the reply itself has a higher one."""


class Failed(msgspec.Struct, frozen=True):
    """A turn stopped and could not say so in the log; without a turn id, every turn of the session is concerned."""

    error: Exception
    turn_id: str | None = None


News = Entry | Live | Failed
MAX_UNREAD = 1000
"""How much is kept for one who does not read."""
MAX_UNREAD_TEXT = 1_000_000
"""Characters of live text that are kept for one who does not read."""


class Subscription:
    """What one watcher has not read yet. It gets words as they are streamed, or with `kept` once they are safe."""

    def __init__(self, *, kept: bool = False) -> None:
        self.kept = kept
        self._news: deque[News] = deque()
        self._bell = asyncio.Event()
        self._must_look = False
        self._unread_text = 0
        self._is_behind = False
        """Whether words were left out: those of the same reply that follow make no sense without them."""

    def put(self, item: News) -> None:
        if isinstance(item, Live) and item.kind == "text" and item.kept != self.kept:
            return
        if len(self._news) >= MAX_UNREAD or self._unread_text > MAX_UNREAD_TEXT:
            self._fall_behind()
        if isinstance(item, Live) and self._is_behind:
            return
        if isinstance(item, Entry) and isinstance(item.event, ModelSaid):
            self._is_behind = False
        last = self._news[-1] if self._news else None
        self._unread_text += len(item.text) if isinstance(item, Live) else 0
        if isinstance(item, Live) and isinstance(last, Live) and (item.turn_id, item.kind) == (last.turn_id, last.kind):
            self._news[-1] = msgspec.structs.replace(last, text=last.text + item.text)
        else:
            self._news.append(item)
        self._bell.set()

    def _fall_behind(self) -> None:
        """Keep nothing for a reader who is too slow: what is committed can be read in the store."""
        self._news = deque(item for item in self._news if isinstance(item, Failed))
        self._unread_text = 0
        self._is_behind = self._must_look = True

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
        item = self._news.popleft() if self._news else None
        self._unread_text -= len(item.text) if isinstance(item, Live) else 0
        return item


class Bus:
    def __init__(self) -> None:
        self._watchers: dict[str, set[Subscription]] = {}

    def subscribe(self, session_id: str, *, kept: bool = False) -> Subscription:
        subscription = Subscription(kept=kept)
        self._watchers.setdefault(session_id, set()).add(subscription)
        return subscription

    def unsubscribe(self, session_id: str, subscription: Subscription) -> None:
        watchers = self._watchers.get(session_id, set())
        watchers.discard(subscription)
        if not watchers:
            self._watchers.pop(session_id, None)

    def wants_kept(self, session_id: str) -> bool:
        """Whether somebody waits for words until they are safe, so that they had better be made safe soon."""
        return any(subscription.kept for subscription in self._watchers.get(session_id, ()))

    def ring(self, session_id: str) -> None:
        """Have the watchers look into the store for themselves."""
        for subscription in self._watchers.get(session_id, ()):
            subscription.ring()

    def publish(self, session_id: str, item: News) -> None:
        for subscription in self._watchers.get(session_id, ()):
            subscription.put(item)

    def publish_to_all(self, item: News) -> None:
        """Tell whoever watches whatever session."""
        for session_id in tuple(self._watchers):
            self.publish(session_id, item)
