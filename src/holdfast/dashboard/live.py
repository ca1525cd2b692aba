"""News for open pages, as server-sent events: those of sessions without a gap or a repeat, and a pulse for all others.

Browsers open few connections to one server, so that one stream carries all that the pages of a browser want to hear. Each
item of a session's page comes under the number of its event: a page that was cut off says where it was and gets the rest.
Words that are still being streamed are read off the draft in the store: a page that comes late, or comes back, has all of them.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast import eventstream
from holdfast.dashboard import pages
from holdfast.dashboard.desk import Desk, of
from holdfast.dashboard.session import about, deeds_of, drawn, read, waiting
from holdfast.dashboard.story import Story
from holdfast.engine.bus import Failed, News
from holdfast.engine.together import stop
from holdfast.model.entry import Entry
from holdfast.model.errors import Invalid, NotFound
from holdfast.model.event import ModelSaid
from holdfast.model.session import Session
from holdfast.store import log
from holdfast.store import sessions as stored

HEARTBEAT = b'data: {"name":"beat"}\n\n'
RETRY = b"retry: 1000\n\n"
MOST = 500
"""Events that a page catches up with; one that missed more is told to load itself again."""
MEMORY = 200
"""Events before a page's last that are read again, for the calls whose results are still to come."""
T = TypeVar("T")
SESSIONS = 200
"""Sessions that one browser can watch at a time; arbitrary, many more than anybody can see."""


class Told(msgspec.Struct, frozen=True, omit_defaults=True):
    """One piece of news. `of` is the session it is about; `seq` the number of its event, if it is one."""

    name: str
    data: object
    of: str = ""
    seq: int = 0

    def line(self) -> bytes:
        return b"data: " + msgspec.json.encode(self) + b"\n\n"


async def stream(request: Request) -> Response:
    """Everything that the pages of a browser want: `pulse`, and `s=ID:AFTER` for each session."""
    desk, given = of(request), request.query_params
    wanted = dict(map(_wanted, given.getlist("s")))
    if len(wanted) > SESSIONS:
        raise Invalid(f"at most {SESSIONS} sessions can be watched at a time")
    sources = [_session(desk, session_id, after) for session_id, after in wanted.items()]
    if "pulse" in given:
        sources.append(_pulse(desk))
    pieces = _while(request.scope["holdfast.lasts"], _together(sources), desk.leaving)
    return eventstream.EventStream(pieces, {})


def _wanted(text: str) -> tuple[str, int]:
    session_id, _, after = text.rpartition(":")
    if not (session_id and after.isascii() and after.isdecimal()) or len(after) > 15:
        raise Invalid("a session is watched by its id, a colon and the number of an event")
    return session_id, int(after)


async def _together(sources: list[AsyncGenerator[Told, None]]) -> AsyncGenerator[bytes, None]:
    """What all of them tell, as it comes, until the last of them ends or one breaks."""
    waiting = {asyncio.ensure_future(_next(one)): one for one in sources}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                source = waiting.pop(future)
                with suppress(StopAsyncIteration):
                    told = future.result()
                    waiting[asyncio.ensure_future(_next(source))] = source
                    yield told.line()
    finally:
        await stop(*waiting)
        for source in sources:
            await source.aclose()


async def _pulse(desk: Desk) -> AsyncGenerator[Told, None]:
    """The newest position of the store, whenever there is a newer one."""
    async with aclosing(desk.pulse.watch()) as positions:
        async for position in positions:
            yield Told("pulse", position)


async def _session(desk: Desk, session_id: str, after: int) -> AsyncGenerator[Told, None]:
    """Everything behind `after`, what is to come included."""
    try:
        found = await desk.database.read(read, session_id)
    except NotFound:
        yield Told("gone", "", session_id)
        return
    after = min(after, found.seq)
    if found.seq - after > MOST:
        yield Told("reload", "", session_id)
        return
    teller = Teller(desk, found.id)
    await teller.remember(after)
    yield await teller.head()
    async for told in teller.draft(anew=True):
        yield told
    queue: asyncio.Queue[News | None] = asyncio.Queue(MOST)
    pump = asyncio.create_task(_pump(desk, found.id, after, queue), name=f"page {found.id}")
    bell = asyncio.create_task(_ring(desk, found.id, queue), name=f"bell {found.id}")
    getting: asyncio.Future[News | None] | None = None
    try:
        while True:
            getting = asyncio.ensure_future(queue.get())
            await asyncio.wait({getting, pump, bell}, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                for task in (pump, bell):
                    if task.done():
                        task.result()
                return
            news = [getting.result()]
            while not queue.empty():
                news.append(queue.get_nowait())
            async for told in teller.tell(news):
                yield told
    finally:
        await stop(*(task for task in (getting, pump, bell) if task is not None))


async def _ring(desk: Desk, session_id: str, queue: asyncio.Queue[News | None]) -> None:
    """Something may have changed that is no event: words wait for their turn."""
    async for _ in desk.database.listen(session_id):
        await queue.put(None)


async def _pump(desk: Desk, session_id: str, after: int, queue: asyncio.Queue[News | None]) -> None:
    async with aclosing(desk.engine.news(session_id, after=after)) as news:
        async for item in news:
            await queue.put(item)


class Teller:
    """Turns news of a session into pieces of its page."""

    def __init__(self, desk: Desk, session_id: str) -> None:
        self._desk = desk
        self._id = session_id
        self._story = Story()
        self._turn_id, self._told = "", 0
        self._waiting: list[tuple[str, str]] = []

    async def remember(self, after: int) -> None:
        first = max(1, after - MEMORY + 1)
        if after:
            self._story.tell(await self._desk.database.read(log.read, self._id, first=first, last=after))

    async def tell(self, news: list[News | None]) -> AsyncGenerator[Told, None]:
        found = await self._desk.database.read(stored.get, self._id)
        changed = None in news and await waiting(self._desk, self._id) != self._waiting
        for item in news:
            if isinstance(item, Entry):
                changed = True
                if isinstance(item.event, ModelSaid):
                    self._told = 0
                    yield self._told_of("draft", {"from": 0, "text": ""})
                yield self._told_of("items", await asyncio.to_thread(self._drawn, item, found), item.seq)
            elif isinstance(item, Failed):
                words = pages.fragment("notice.html", words=f"The turn broke off: {item.error}", bad=True)
                yield self._told_of("notice", _plain(words))
        if changed:
            yield await self.head()
        async for told in self.draft():
            yield told

    def _told_of(self, name: str, data: object, seq: int = 0) -> Told:
        return Told(name, data, self._id, seq)

    def _drawn(self, entry: Entry, found: Session) -> list[dict[str, str]]:
        return [{"id": item.id, "html": _plain(drawn(item, found))} for item in self._story.add(entry)]

    async def head(self) -> Told:
        """What stands around the conversation."""
        found = await self._desk.database.read(stored.get, self._id)
        beside = await about(self._desk, found)
        self._waiting = beside["waiting"]
        told = {
            "html": _plain(pages.fragment("head.html", session=found, **beside)),
            "deeds": _plain(pages.fragment("deeds.html", session=found, csrf="", **deeds_of(found))),
            "state": found.state,
            "asking": bool(beside["questions"]),
            "title": _plain(found.summary.title or ""),
        }
        return self._told_of("head", told)

    async def draft(self, *, anew: bool = False) -> AsyncGenerator[Told, None]:
        """What has been added to the reply that is being written; or all of it, or that there is none."""
        draft = await self._desk.database.read(log.draft, self._id)
        body = "" if draft is None else draft.body
        turn_id = "" if draft is None else draft.turn_id
        if anew or turn_id != self._turn_id or len(body) < self._told:
            self._turn_id, self._told = turn_id, 0
            yield self._told_of("draft", {"from": 0, "text": ""})
        if len(body) > self._told:
            yield self._told_of("draft", {"from": self._told, "text": _plain(body[self._told :])})
            self._told = len(body)


def _plain(text: str) -> str:
    """Text that can be written as UTF-8, whatever a model has streamed."""
    return str(text).encode("utf-8", "backslashreplace").decode()


async def _while(
    lasts: Callable[[], Awaitable[bool]], pieces: AsyncGenerator[bytes, None], leaving: asyncio.Event
) -> AsyncGenerator[bytes, None]:
    """The pieces, and a sign of life when none comes, until the server leaves or the visit ends: who has logged out hears no more."""
    yield RETRY
    async with aclosing(eventstream.with_heartbeats(pieces, eventstream.HEARTBEAT_SECONDS, until=leaving)) as beats:
        async for piece in beats:
            if not await lasts():
                return
            yield HEARTBEAT if piece is None else piece


async def _next(source: AsyncGenerator[T, None]) -> T:
    return await anext(source)
