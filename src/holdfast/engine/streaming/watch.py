"""Watches a session: all committed events, in order and without gaps, and the streamed text in between."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

from holdfast.engine.admission.admit import Admission
from holdfast.engine.services import EngineServices
from holdfast.engine.streaming.bus import LiveText, StreamItem, Subscription, TurnBroke
from holdfast.model.entry import Entry
from holdfast.model.event import InputDropped, ModelSaid, TurnEnded, UserSaid
from holdfast.store.database import Transaction
from holdfast.store.repos import log
from holdfast.store.repos.log import ReplyDraft

PAGE = 500
"""Events per read: a slow watcher needs no more memory than that."""
SoFar = Callable[[str], list[LiveText]]
"""Returns the text so far of the reply that this worker is streaming, if any."""


class DraftReader:
    """Tracks how much of the newest draft was yielded, so that text is yielded once."""

    def __init__(self) -> None:
        self._turn_id = ""
        self._yielded = ""
        self._notice = ""

    def note(self, live: LiveText) -> None:
        """Note text that was streamed here: if another worker continues the reply, it is not repeated."""
        if live.kind == "restarted" or live.turn_id != self._turn_id:
            self._turn_id, self._yielded = live.turn_id, ""
        if live.kind == "retrying":
            self._notice = live.text
        if live.kind == "text":
            self._yielded = self._yielded[: live.at] + live.text

    def note_entry(self, entry: Entry) -> None:
        """Note an event. If it is the reply, whole or partial, the next one starts empty."""
        if isinstance(entry.event, ModelSaid):
            self._yielded = self._notice = ""

    def read_new(self, draft: ReplyDraft | None, *, behind: int = 0) -> list[LiveText]:
        """What is new in the draft. A draft that does not continue the last one is a restarted reply.

        `behind` is the number of the last event.
        """
        if draft is None:
            self._yielded = self._notice = ""
            return []
        if draft.turn_id != self._turn_id:
            self._turn_id, self._yielded, self._notice = draft.turn_id, "", ""
        items: list[LiveText] = []
        if not draft.body.startswith(self._yielded):
            items.append(LiveText(draft.turn_id, "restarted", "another attempt was made", behind=behind))
            self._yielded = ""
        if draft.notice and draft.notice != self._notice:
            items.append(LiveText(draft.turn_id, "retrying", draft.notice, behind=behind))
        self._notice = draft.notice
        if more := draft.body[len(self._yielded) :]:
            items.append(LiveText(draft.turn_id, "text", more, kept=True, at=len(self._yielded), behind=behind))
        self._yielded = draft.body
        return items


class _IdleTimer:
    """Wakes a follower that has received nothing for some time. Items of other turns do not count.

    It is restarted for each piece of text, so a restart only moves the time at which the running timer looks again.
    """

    def __init__(self, seconds: float, subscription: Subscription) -> None:
        self._seconds = seconds
        self._subscription = subscription
        self._loop = asyncio.get_running_loop()
        self._due_at = self._loop.time() + seconds
        self._timer = self._loop.call_at(self._due_at, self._look)

    def restart(self) -> None:
        self._due_at = self._loop.time() + self._seconds

    def take(self) -> bool:
        """Whether the time is over; if so, it starts again."""
        if self._loop.time() < self._due_at:
            return False
        self.restart()
        return True

    def close(self) -> None:
        self._timer.cancel()

    def _look(self) -> None:
        is_due = self._loop.time() >= self._due_at
        if is_due:
            self._subscription.rouse()
        self._timer = self._loop.call_at(self._loop.time() + self._seconds if is_due else self._due_at, self._look)


class SessionWatch:
    """Serves the watchers of a worker, whether this worker or another one runs the turns."""

    def __init__(self, services: EngineServices, is_active: Callable[[str], bool], so_far: SoFar) -> None:
        self._services = services
        self._is_active = is_active
        self._so_far = so_far

    def subscribe(self, session_id: str, *, durable: bool) -> Subscription:
        """Collect what is published about the session from now on. A `durable` subscription gets only durable text."""
        return self._services.bus.subscribe(session_id, kept=durable)

    def unsubscribe(self, session_id: str, subscription: Subscription) -> None:
        self._services.bus.unsubscribe(session_id, subscription)

    async def all(
        self, session_id: str, *, after: int = 0, kept: bool = False, so_far: bool = False, output: bool = False
    ) -> AsyncGenerator[StreamItem, None]:
        """Yield every event after `after`, new ones included, streamed text, and turns that broke. Does not end.

        With `kept`, text is yielded only once it is durable. With `so_far`, a watcher that starts in the middle of a reply
        first gets its text so far; some of it may come again, as its position in the reply shows. With `output`, it also gets
        the newest output of running calls.
        """
        subscription = self._services.bus.subscribe(session_id, kept=kept, output=output)
        try:
            async with aclosing(self._follow(session_id, after + 1, subscription, so_far=so_far)) as items:
                async for item in items:
                    if item is not None:
                        yield item
        finally:
            self._services.bus.unsubscribe(session_id, subscription)

    async def turn(
        self, admission: Admission, subscription: Subscription, first: int = 1, *, idle_seconds: float | None = None
    ) -> AsyncGenerator[Entry | LiveText | None, None]:
        """Yield the turn of an admission to its end, then unsubscribe. The follower subscribed before the turn started.

        One that joins it later and wants only durable text reads the drafts in the store, where nothing is missing.
        With `idle_seconds`, None is yielded whenever nothing has happened for that long.
        """
        joins = admission.repeated and subscription.kept
        if not admission.repeated:
            first = admission.session.seq + 1 - len(admission.entries)
        session_id = admission.session.id
        idle = None if idle_seconds is None else _IdleTimer(idle_seconds, subscription)
        try:
            follow = self._follow(session_id, first, subscription, is_published=admission.began, joins=joins, idle=idle)
            async with aclosing(follow) as items:
                async for item in _of_turn(items, admission.turn_id):
                    yield item
                    if idle is not None:
                        idle.restart()
        finally:
            if idle is not None:
                idle.close()
            self.unsubscribe(session_id, subscription)

    async def _follow(
        self,
        session_id: str,
        first: int,
        subscription: Subscription,
        *,
        is_published: bool = False,
        joins: bool = False,
        so_far: bool = False,
        idle: "_IdleTimer | None" = None,
    ) -> AsyncGenerator[StreamItem | None, None]:
        """Yield all items of a session, in order and without gaps, whichever worker runs it; None when the timer is due.

        With `is_published`, the bus brings everything from `first` on, so that the store need not be read first.
        """
        drafts = DraftReader()

        def on_change() -> None:
            if not self._is_active(session_id):  # another worker may have written
                subscription.wake()

        unsubscribe = self._services.database.subscribe(session_id, on_change)
        try:
            must_read = not is_published
            while True:
                if idle is not None and idle.take():
                    yield None
                item = None if must_read else subscription.take()
                if isinstance(item, LiveText) and joins:
                    must_read = True
                elif isinstance(item, LiveText):
                    drafts.note(item)
                    yield item
                elif isinstance(item, TurnBroke):
                    yield item
                elif isinstance(item, Entry) and item.seq <= first:
                    if item.seq == first:
                        first += 1
                        drafts.note_entry(item)
                        yield item
                elif item is not None or must_read:  # other workers have written, too
                    entries, draft = await self._services.database.read(_read_new, session_id, first=first)
                    for entry in entries:
                        first = entry.seq + 1
                        drafts.note_entry(entry)
                        yield entry
                    must_read = len(entries) == PAGE
                    if must_read:
                        continue
                    if joins or not self._is_active(session_id):
                        texts = drafts.read_new(draft, behind=first - 1)
                    else:
                        texts = self._so_far(session_id) if so_far else []
                    so_far = False
                    for live in texts:
                        yield live
                else:
                    must_read = await subscription.wait()
        finally:
            unsubscribe()


def _read_new(tx: Transaction, session_id: str, *, first: int) -> tuple[list[Entry], ReplyDraft | None]:
    return log.read(tx, session_id, first=first, last=first + PAGE - 1), log.get_draft(tx, session_id)


async def _of_turn(items: AsyncIterator[StreamItem | None], turn_id: str) -> AsyncIterator[Entry | LiveText | None]:
    """The items of one turn, up to its end. Input that joined a running turn follows that turn."""
    async for item in items:
        if item is None:
            yield None
            continue
        if isinstance(item, TurnBroke):
            if item.turn_id in (None, turn_id):
                raise item.error
            continue
        event = item.event if isinstance(item, Entry) else item
        if isinstance(event, UserSaid) and event.input_id == turn_id:
            turn_id = event.turn_id
        if getattr(event, "turn_id", None) == turn_id:
            yield item
            if isinstance(event, TurnEnded | InputDropped):
                return
