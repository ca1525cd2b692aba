"""Watching a session: all that is committed, in order and without gaps, and the live text in between."""

import asyncio
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from contextlib import aclosing

from holdfast.engine.admit import Admission
from holdfast.engine.bus import Failed, Live, News, Subscription
from holdfast.engine.drafts import Drafts
from holdfast.engine.hand import Ground
from holdfast.engine.together import stop
from holdfast.model.entry import Entry
from holdfast.model.event import InputDropped, ModelSaid, TurnEnded, UserSaid
from holdfast.store import log
from holdfast.store.database import Transaction
from holdfast.store.log import Draft

PAGE = 500
"""Events that are read at once: one who reads slowly costs no more memory than that."""
SoFar = Callable[[str], list[Live]]
"""What the reply in the making, if this worker makes one, has said so far."""


class Watch:
    """Serves the watchers of a worker, whether it plays the turns itself or another does."""

    def __init__(self, ground: Ground, serves: Callable[[str], bool], so_far: SoFar) -> None:
        self._ground = ground
        self._serves = serves
        self._so_far = so_far

    async def all(
        self, session_id: str, *, after: int = 0, kept: bool = False, so_far: bool = False
    ) -> AsyncGenerator[News, None]:
        """Every event behind `after`, those to come included, live text and turns that broke; for ever.

        `kept` is for a face that shows words only once they are safe. With `so_far` one who comes in the middle of a
        reply is told what was said of it; some of that may come again, as its place in the reply tells.
        """
        subscription = self._ground.bus.subscribe(session_id, kept=kept)
        try:
            async with aclosing(self._follow(session_id, after + 1, subscription, so_far=so_far)) as news:
                async for item in news:
                    yield item
        finally:
            self._ground.bus.unsubscribe(session_id, subscription)

    async def turn(
        self, admission: Admission, subscription: Subscription, first: int = 1
    ) -> AsyncGenerator[Entry | Live, None]:
        """The turn of an admission to its end, for a watcher who subscribed before it was set going.

        One who joins it later and wants only words that are safe reads them in the store, where none is missing.
        """
        joins = admission.repeated and subscription.kept
        if not admission.repeated:
            first = admission.session.seq + 1 - len(admission.entries)
        session_id = admission.session.id
        async with aclosing(self._follow(session_id, first, subscription, told=admission.began, joins=joins)) as news:
            async for item in _of_turn(news, admission.turn_id):
                yield item

    async def _follow(
        self,
        session_id: str,
        first: int,
        subscription: Subscription,
        *,
        told: bool = False,
        joins: bool = False,
        so_far: bool = False,
    ) -> AsyncGenerator[News, None]:
        """All news of a session, in order and without gaps, whether this worker makes them or another.

        `told` means that the bus brings everything from `first` on, so that the store need not be asked first.
        """
        ringer = asyncio.create_task(
            self._ring_on_news(session_id, subscription, told=told), name=f"watch {session_id}"
        )
        drafts = Drafts()
        try:
            look = not told
            while True:
                item = None if look else subscription.take()
                if isinstance(item, Live) and joins:
                    look = True
                elif isinstance(item, Live | Failed):
                    if isinstance(item, Live):
                        drafts.hear(item)
                    yield item
                elif isinstance(item, Entry) and item.seq <= first:
                    if item.seq == first:
                        first += 1
                        _settle(drafts, item)
                        yield item
                elif item is not None or look:  # others have written, too
                    entries, draft = await self._ground.database.read(_written, session_id, first=first)
                    for entry in entries:
                        first = entry.seq + 1
                        _settle(drafts, entry)
                        yield entry
                    look = len(entries) == PAGE
                    if look:
                        lives = []
                    elif joins or not self._serves(session_id):
                        lives = drafts.news(draft, behind=first - 1)
                    else:
                        lives = self._so_far(session_id) if so_far else []
                    so_far = so_far and look
                    for live in lives:
                        yield live
                else:
                    look = await subscription.wait()
        finally:
            await stop(ringer)

    async def _ring_on_news(self, session_id: str, subscription: Subscription, *, told: bool) -> None:
        """Have the watcher look into the store when something may have been written that did not come over the bus."""
        async for _ in self._ground.database.listen(session_id):
            if not told and not self._serves(session_id):
                subscription.ring()
            told = False


def _settle(drafts: Drafts, entry: Entry) -> None:
    if isinstance(entry.event, ModelSaid):
        drafts.settle()


def _written(tx: Transaction, session_id: str, *, first: int) -> tuple[list[Entry], Draft | None]:
    return log.read(tx, session_id, first=first, last=first + PAGE - 1), log.draft(tx, session_id)


async def _of_turn(news: AsyncIterator[News], turn_id: str) -> AsyncIterator[Entry | Live]:
    """What belongs to one turn, up to its end. Words that joined a running turn follow that one."""
    async for item in news:
        if isinstance(item, Failed):
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
