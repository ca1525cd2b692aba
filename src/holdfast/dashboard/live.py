"""News for open pages, as server-sent events: those of a session without a gap or a repeat, and a pulse for all others.

Each item of a session's page comes under the number of its event, so that a page that was cut off says where it was and
gets the rest. Words that are still being streamed are read off the draft in the store: a page that comes
late, or comes back, has all of them.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing, suppress
from typing import Any

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.dashboard import pages
from holdfast.dashboard.desk import Desk, of
from holdfast.dashboard.session import about, drawn, read
from holdfast.dashboard.story import Story
from holdfast.engine.bus import Failed, News
from holdfast.engine.together import stop
from holdfast.model.entry import Entry
from holdfast.model.errors import Invalid
from holdfast.model.event import ModelSaid
from holdfast.model.session import Session
from holdfast.store import log
from holdfast.store import sessions as stored

HEARTBEAT_SECONDS = 10.0
HEARTBEAT = b": still here\n\n"
RETRY = b"retry: 1000\n\n"
MOST = 500
"""Events that a page catches up with; one that missed more is told to load itself again."""
MEMORY = 200
"""Events before a page's last that are read again, for the calls whose results are still to come."""


def message(name: str, data: object, seq: int | None = None) -> bytes:
    """One event; its data is one line of JSON."""
    number = b"" if seq is None else b"id: %d\n" % seq
    text = msgspec.json.encode(data)
    return number + b"event: " + name.encode() + b"\ndata: " + text + b"\n\n"


async def pulse(request: Request) -> Response:
    """The newest position of the store, whenever there is a newer one."""
    desk = of(request)
    return Stream(_pulse(desk), desk.leaving)


async def _pulse(desk: Desk) -> AsyncGenerator[bytes, None]:
    async with aclosing(desk.pulse.watch()) as positions:
        async for position in positions:
            yield message("pulse", position)


async def session(request: Request) -> Response:
    """Everything behind `after`, those to come included."""
    desk = of(request)
    found = await desk.database.read(read, request.path_params["id"])
    given = request.headers.get("last-event-id") or request.query_params.get("after", "0")
    if not (given.isascii() and given.isdecimal()) or len(given) > 15:
        raise Invalid("after is the number of an event")
    return Stream(_session(desk, found, min(int(given), found.seq)), desk.leaving)


async def _session(desk: Desk, found: Session, after: int) -> AsyncGenerator[bytes, None]:
    if found.seq - after > MOST:
        yield message("reload", "")
        return
    teller = Teller(desk, found.id)
    await teller.remember(after)
    yield await teller.head()
    async for piece in teller.draft():
        yield piece
    queue: asyncio.Queue[News] = asyncio.Queue(MOST)
    pump = asyncio.create_task(_pump(desk, found.id, after, queue), name=f"page {found.id}")
    getting: asyncio.Future[News] | None = None
    try:
        while True:
            getting = asyncio.ensure_future(queue.get())
            await asyncio.wait({getting, pump}, return_when=asyncio.FIRST_COMPLETED)
            if not getting.done():
                pump.result()
                return
            news = [getting.result()]
            while not queue.empty():
                news.append(queue.get_nowait())
            async for piece in teller.tell(news):
                yield piece
    finally:
        await stop(*(task for task in (getting, pump) if task is not None))


async def _pump(desk: Desk, session_id: str, after: int, queue: asyncio.Queue[News]) -> None:
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

    async def remember(self, after: int) -> None:
        first = max(1, after - MEMORY + 1)
        if after:
            self._story.tell(await self._desk.database.read(log.read, self._id, first=first, last=after))

    async def tell(self, news: list[News]) -> AsyncGenerator[bytes, None]:
        found = await self._desk.database.read(stored.get, self._id)
        changed = False
        for item in news:
            if isinstance(item, Entry):
                changed = True
                if isinstance(item.event, ModelSaid):
                    self._told = 0
                    yield message("draft", {"from": 0, "text": ""})
                yield message("items", await asyncio.to_thread(self._drawn, item, found), item.seq)
            elif isinstance(item, Failed):
                words = pages.fragment("notice.html", words=f"The turn broke off: {item.error}", bad=True)
                yield message("notice", _plain(words))
        if changed:
            yield await self.head()
        async for piece in self.draft():
            yield piece

    def _drawn(self, entry: Entry, found: Session) -> list[dict[str, str]]:
        return [{"id": item.id, "html": _plain(drawn(item, found))} for item in self._story.add(entry)]

    async def head(self) -> bytes:
        """What stands around the conversation."""
        found = await self._desk.database.read(stored.get, self._id)
        around = pages.fragment("head.html", session=found, **await about(self._desk, found))
        return message(
            "head", {"html": _plain(around), "state": found.state, "title": _plain(found.summary.title or "")}
        )

    async def draft(self) -> AsyncGenerator[bytes, None]:
        """What has been added to the reply that is being written."""
        draft = await self._desk.database.read(log.draft, self._id)
        body = "" if draft is None else draft.body
        turn_id = "" if draft is None else draft.turn_id
        if turn_id != self._turn_id or len(body) < self._told:
            self._turn_id, self._told = turn_id, 0
            yield message("draft", {"from": 0, "text": ""})
        if len(body) > self._told:
            yield message("draft", {"from": self._told, "text": _plain(body[self._told :])})
            self._told = len(body)


def _plain(text: str) -> str:
    """Text that can be written as UTF-8, whatever a model has streamed."""
    return str(text).encode("utf-8", "backslashreplace").decode()


class Stream(Response):
    """Sends pieces as they come, and a sign of life when none does, until they end, or the page or the server leaves."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], leaving: asyncio.Event) -> None:
        self.status_code = 200
        self.background = None
        self._pieces = pieces
        self._closing = leaving
        self.init_headers({"content-type": "text/event-stream; charset=utf-8", "x-accel-buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.wait({sending, leaving})
            await self._pieces.aclose()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        await send({"type": "http.response.body", "body": RETRY, "more_body": True})
        closing = asyncio.ensure_future(self._closing.wait())
        waiting: asyncio.Future[bytes] | None = None
        try:
            while not closing.done():
                waiting = waiting or asyncio.ensure_future(_next(self._pieces))
                ends: set[asyncio.Future[Any]] = {waiting, closing}
                await asyncio.wait(ends, timeout=HEARTBEAT_SECONDS, return_when=asyncio.FIRST_COMPLETED)
                if waiting.done():
                    done, waiting = waiting, None
                    await send({"type": "http.response.body", "body": done.result(), "more_body": True})
                else:
                    await send({"type": "http.response.body", "body": HEARTBEAT, "more_body": True})
        except StopAsyncIteration:
            pass
        finally:
            closing.cancel()
            if waiting is not None:
                waiting.cancel()
                with suppress(asyncio.CancelledError, StopAsyncIteration):
                    await waiting
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _next(pieces: AsyncGenerator[bytes, None]) -> bytes:
    return await anext(pieces)


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
