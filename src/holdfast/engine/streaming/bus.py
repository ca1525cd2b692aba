"""Publishes events and streamed text of the sessions that this worker runs, within the process.

Committed events are published after their commit. Text is merged for a subscriber that falls behind, because the log
has all of it in the end. A subscriber that falls far behind reads the store instead, so that unread items do not pile
up. Publishing never waits.
"""

import asyncio
from collections import deque
from typing import Literal

import msgspec

from holdfast.model.entry import Entry
from holdfast.model.event import ModelSaid


class LiveText(msgspec.Struct, frozen=True):
    """An item that is not in the log: streamed text, a restart of the reply, a retry of the model call, a call's progress or output."""

    turn_id: str
    kind: Literal["text", "reasoning", "restarted", "retrying", "progress", "output"]
    text: str
    kept: bool = False
    """Whether the text would survive a crash of its worker: it is saved in a draft."""
    at: int = 0
    """How many characters of the same reply come before this text."""
    behind: int = 0
    """The number of the last event when the text was streamed; the reply itself gets a higher one."""
    call_id: str = ""
    """The running call whose newest `output` this is: it replaces what was shown of it before."""


class TurnBroke(msgspec.Struct, frozen=True):
    """A turn that stopped without an event in the log; without a turn id, all turns of the session."""

    error: Exception
    turn_id: str | None = None


StreamItem = Entry | LiveText | TurnBroke
MAX_UNREAD = 1000
"""Unread items that are kept for a subscriber."""
MAX_UNREAD_TEXT = 1_000_000
"""Characters of unread text that are kept for a subscriber."""


class Subscription:
    """The unread items of one watcher. It gets text as it is streamed or, with `kept`, once it is durable.

    Only with `output` it gets the output of running calls.
    """

    def __init__(self, *, kept: bool = False, output: bool = False) -> None:
        self.kept = kept
        self.output = output
        self._items: deque[StreamItem] = deque()
        self._ready = asyncio.Event()
        self._must_read = False
        self._unread_text = 0
        self._is_behind = False
        """Whether text was dropped: the following text of the same reply makes no sense without it."""

    def put(self, item: StreamItem) -> None:
        if isinstance(item, LiveText) and item.kind == "text" and item.kept != self.kept:
            return
        if isinstance(item, LiveText) and item.kind == "output" and not self.output:
            return
        if len(self._items) >= MAX_UNREAD or self._unread_text > MAX_UNREAD_TEXT:
            self._fall_behind()
        if isinstance(item, LiveText) and self._is_behind:
            return
        if isinstance(item, Entry) and isinstance(item.event, ModelSaid):
            self._is_behind = False
        last = self._items[-1] if self._items else None
        self._unread_text += len(item.text) if isinstance(item, LiveText) else 0
        if isinstance(item, LiveText) and isinstance(last, LiveText) and _continues(last, item):
            self._items[-1] = msgspec.structs.replace(last, text=last.text + item.text)
        elif isinstance(item, LiveText) and isinstance(last, LiveText) and _replaces(last, item):
            self._unread_text -= len(last.text)
            self._items[-1] = item
        else:
            self._items.append(item)
        self._ready.set()

    def _fall_behind(self) -> None:
        """Drop the items of a watcher that is too slow: it can read committed events in the store."""
        self._items = deque(item for item in self._items if isinstance(item, TurnBroke))
        self._unread_text = 0
        self._is_behind = self._must_read = True

    def wake(self) -> None:
        """Wake the watcher without an item, to read the store."""
        self._must_read = True
        self._ready.set()

    def rouse(self) -> None:
        """Wake the watcher although there is nothing new."""
        self._ready.set()

    async def wait(self) -> bool:
        """Wait for items, or to be roused; whether the watcher must also read the store."""
        await self._ready.wait()
        self._ready.clear()
        must_read, self._must_read = self._must_read, False
        return must_read

    def take(self) -> StreamItem | None:
        item = self._items.popleft() if self._items else None
        self._unread_text -= len(item.text) if isinstance(item, LiveText) else 0
        return item


def _continues(last: LiveText, item: LiveText) -> bool:
    """Whether two pieces of text can be merged."""
    return (item.turn_id, item.kind) == (last.turn_id, last.kind) and item.kind not in (
        "retrying",
        "progress",
        "output",
    )


def _replaces(last: LiveText, item: LiveText) -> bool:
    """Whether the later of two items makes the earlier one obsolete."""
    return item.kind == last.kind == "output" and item.call_id == last.call_id


class Bus:
    """One per worker."""

    def __init__(self) -> None:
        self._watchers: dict[str, set[Subscription]] = {}
        self._outputs: dict[str, dict[str, LiveText]] = {}
        """The newest output of each running call, by session and call: whoever subscribes later gets it, too."""

    def subscribe(self, session_id: str, *, kept: bool = False, output: bool = False) -> Subscription:
        subscription = Subscription(kept=kept, output=output)
        self._watchers.setdefault(session_id, set()).add(subscription)
        for shown in self._outputs.get(session_id, {}).values():
            subscription.put(shown)
        return subscription

    def unsubscribe(self, session_id: str, subscription: Subscription) -> None:
        watchers = self._watchers.get(session_id, set())
        watchers.discard(subscription)
        if not watchers:
            self._watchers.pop(session_id, None)

    def wants_durable(self, session_id: str) -> bool:
        """Whether a watcher gets only durable text, so that drafts should be saved often."""
        return any(subscription.kept for subscription in self._watchers.get(session_id, ()))

    def show_output(self, session_id: str, output: LiveText) -> None:
        """Publish the newest output of a running call, and keep it for later watchers until `end_output`."""
        self._outputs.setdefault(session_id, {})[output.call_id] = output
        self.publish(session_id, output)

    def end_output(self, session_id: str, call_id: str) -> None:
        """The call has ended."""
        outputs = self._outputs.get(session_id, {})
        outputs.pop(call_id, None)
        if not outputs:
            self._outputs.pop(session_id, None)

    def wake(self, session_id: str) -> None:
        """Make the watchers of the session read the store."""
        for subscription in self._watchers.get(session_id, ()):
            subscription.wake()

    def publish(self, session_id: str, item: StreamItem) -> None:
        for subscription in self._watchers.get(session_id, ()):
            subscription.put(item)

    def publish_to_all(self, item: StreamItem) -> None:
        """Publish to the watchers of all sessions."""
        for session_id in tuple(self._watchers):
            self.publish(session_id, item)
