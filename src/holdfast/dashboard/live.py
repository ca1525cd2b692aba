"""Live updates of open pages as server-sent events: session events without gaps or repeats, and store changes for other pages.

Browsers open few connections to one server, so one stream carries the updates of all pages of a browser. Each item of a
session's page has the number of its event: a page that reconnects says where it was and gets the rest. The reply in
progress is read from the draft in the store, so a page that opens late or reconnects shows all of it.
"""

import asyncio
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, suppress
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast import sse
from holdfast.dashboard import templating
from holdfast.dashboard.context import DashboardContext, get_context
from holdfast.dashboard.session import available_actions, load_details, load_queue, load_session, render_item
from holdfast.engine.streaming.bus import LiveText, StreamItem, TurnBroke
from holdfast.interop.pages.transcript import PageTranscript
from holdfast.model.entry import Entry
from holdfast.model.errors import Invalid, NotFound
from holdfast.model.event import ModelSaid
from holdfast.model.sanitize import visible
from holdfast.model.session import Session
from holdfast.model.text import parse_decimal
from holdfast.store.repos import log
from holdfast.store.repos import sessions as stored
from holdfast.tasks import Tasks, running, wait_for_first

HEARTBEAT = sse.format_event({"name": "beat"})
MAX_EVENTS = 500
"""Events that a page catches up with; a page that missed more is reloaded."""
PRECEDING_EVENTS = 200
"""Events before a page's last that are read again, to find the calls of later results."""
T = TypeVar("T")
MAX_SESSIONS = 200
"""Sessions that one browser can watch at a time; arbitrary, more than anyone can view."""


class PageUpdate(msgspec.Struct, frozen=True, omit_defaults=True):
    """One update. `of` is its session; `seq` the number of its event, if it is an event."""

    name: str
    data: object
    of: str = ""
    seq: int = 0

    def encode(self) -> bytes:
        return sse.format_event(self)


async def stream_updates(request: Request) -> Response:
    """Stream all updates that a browser subscribes to: `pulse`, and `s=ID:AFTER` for each session."""
    context, parameters = get_context(request), request.query_params
    subscriptions = dict(map(_parse_subscription, parameters.getlist("s")))
    if len(subscriptions) > MAX_SESSIONS:
        raise Invalid(f"at most {MAX_SESSIONS} sessions can be watched at a time")
    sources = [_watch_session(context, session_id, after) for session_id, after in subscriptions.items()]
    if "pulse" in parameters:
        sources.append(_watch_store(context))
    chunks = _until_logged_out(request.scope["holdfast.is_active"], _merge(sources), context.stopping)
    return sse.EventStream(chunks, {})


def _parse_subscription(text: str) -> tuple[str, int]:
    session_id, _, after = text.rpartition(":")
    seq = parse_decimal(after)
    if not session_id or seq is None:
        raise Invalid("s must be SESSION_ID:EVENT_NUMBER")
    return session_id, seq


async def _merge(sources: list[AsyncGenerator[PageUpdate, None]]) -> AsyncGenerator[bytes, None]:
    """Merge the sources in order of arrival, until all end or one fails."""
    tasks = Tasks(on_failure=None)
    waiting = {tasks.start(_next(one)): one for one in sources}
    try:
        while waiting:
            done, _ = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
            for future in done:
                source = waiting.pop(future)
                with suppress(StopAsyncIteration):
                    update = future.result()
                    waiting[tasks.start(_next(source))] = source
                    yield update.encode()
    finally:
        await tasks.close()
        for source in sources:
            await source.aclose()


async def _watch_store(context: DashboardContext) -> AsyncGenerator[PageUpdate, None]:
    """Yield the newest position of the store now and whenever it changes."""
    async with aclosing(context.changes.watch()) as positions:
        async for position in positions:
            yield PageUpdate("pulse", position)


async def _watch_session(context: DashboardContext, session_id: str, after: int) -> AsyncGenerator[PageUpdate, None]:
    """Updates of a session after event `after`, including future ones."""
    try:
        session = await context.database.read(load_session, session_id)
    except NotFound:
        yield PageUpdate("gone", "", session_id)
        return
    after = min(after, session.seq)
    if session.seq - after > MAX_EVENTS:
        yield PageUpdate("reload", "", session_id)
        return
    renderer = PageUpdateRenderer(context, session.id)
    await renderer.load_preceding(after)
    yield await renderer.render_head()
    async for update in renderer.render_draft(restart=True):
        yield update
    queue: asyncio.Queue[StreamItem | None] = asyncio.Queue(MAX_EVENTS)
    async with running(_pump_news(context, session.id, after, queue), _watch_queue(context, session.id, queue)) as (
        pump,
        queue_watch,
    ):
        while True:
            async with running(queue.get()) as (getting,):
                await wait_for_first(getting, pump, queue_watch)
            if getting.cancelled():
                for task in (pump, queue_watch):
                    if task.done():
                        task.result()
                return
            news = [getting.result()]
            while not queue.empty():
                news.append(queue.get_nowait())
            async for update in renderer.render_news(news):
                yield update


async def _watch_queue(context: DashboardContext, session_id: str, queue: asyncio.Queue[StreamItem | None]) -> None:
    """Report changes that are not events, such as queued messages."""
    async for _ in context.database.listen(session_id):
        await queue.put(None)


async def _pump_news(
    context: DashboardContext, session_id: str, after: int, queue: asyncio.Queue[StreamItem | None]
) -> None:
    async with aclosing(context.engine.watch(session_id, after=after, stream="durable", output=True)) as news:
        async for item in news:
            await queue.put(item)


class PageUpdateRenderer:
    """Renders updates of a session as HTML for its page."""

    def __init__(self, context: DashboardContext, session_id: str) -> None:
        self._context = context
        self._id = session_id
        self._transcript = PageTranscript()
        self._turn_id, self._sent_chars = "", 0
        self._queued: list[tuple[str, str]] = []

    async def load_preceding(self, after: int) -> None:
        first = max(1, after - PRECEDING_EVENTS + 1)
        if after:
            entries = await self._context.database.read(log.read, self._id, first=first, last=after)
            await asyncio.to_thread(self._transcript.add_all, entries)

    async def render_news(self, news: list[StreamItem | None]) -> AsyncGenerator[PageUpdate, None]:
        session = await self._context.database.read(stored.get, self._id)
        changed = None in news and await load_queue(self._context, self._id) != self._queued
        for item in news:
            if isinstance(item, Entry):
                changed = True
                if isinstance(item.event, ModelSaid):
                    self._sent_chars = 0
                    yield self._make_update("draft", {"from": 0, "text": ""})
                yield self._make_update("items", await asyncio.to_thread(self._render_entry, item, session), item.seq)
            elif isinstance(item, LiveText):
                if item.kind == "output" and (card := self._transcript.find_call(item.turn_id, item.call_id)):
                    yield self._make_update("output", {"id": card.id, "text": _encodable(visible(item.text))})
            elif isinstance(item, TurnBroke):
                notice = templating.render_fragment("notice.html", text=f"The turn was aborted: {item.error}", bad=True)
                yield self._make_update("notice", _encodable(notice))
        if changed:
            yield await self.render_head()
        async for update in self.render_draft():
            yield update

    def _make_update(self, name: str, data: object, seq: int = 0) -> PageUpdate:
        return PageUpdate(name, data, self._id, seq)

    def _render_entry(self, entry: Entry, session: Session) -> list[dict[str, str]]:
        return [{"id": item.id, "html": _encodable(render_item(item, session))} for item in self._transcript.add(entry)]

    async def render_head(self) -> PageUpdate:
        """The header and the actions of the page."""
        session = await self._context.database.read(stored.get, self._id)
        details = await load_details(self._context, session)
        self._queued = details["queued"]
        update = {
            "html": _encodable(templating.render_fragment("head.html", session=session, **details)),
            "queued": _encodable(templating.render_fragment("queued.html", queued=details["queued"])),
            # Open pages of earlier versions expect this key.
            "deeds": _encodable(
                templating.render_fragment(
                    "actions.html",
                    session=session,
                    csrf="",
                    actions=available_actions(
                        session, details["failure"], can_undo=details["can_undo"], can_compact=details["can_compact"]
                    ),
                )
            ),
            "state": session.state,
            "asking": bool(details["questions"]),
            "title": _encodable(session.summary.title or ""),
        }
        return self._make_update("head", update)

    async def render_draft(self, *, restart: bool = False) -> AsyncGenerator[PageUpdate, None]:
        """What was added to the reply in progress; with `restart`, all of it."""
        draft = await self._context.database.read(log.get_draft, self._id)
        body = "" if draft is None else draft.body
        turn_id = "" if draft is None else draft.turn_id
        if restart or turn_id != self._turn_id or len(body) < self._sent_chars:
            self._turn_id, self._sent_chars = turn_id, 0
            yield self._make_update("draft", {"from": 0, "text": ""})
        if len(body) > self._sent_chars:
            yield self._make_update("draft", {"from": self._sent_chars, "text": _encodable(body[self._sent_chars :])})
            self._sent_chars = len(body)


def _encodable(text: str) -> str:
    """Replace what UTF-8 cannot encode."""
    return str(text).encode("utf-8", "backslashreplace").decode()


async def _until_logged_out(
    is_active: Callable[[], Awaitable[bool]], chunks: AsyncGenerator[bytes, None], stopping: asyncio.Event
) -> AsyncGenerator[bytes, None]:
    """Yield the chunks, with heartbeats between them, until the server stops or the browser is logged out."""
    yield sse.RETRY
    async with aclosing(sse.with_heartbeats(chunks, sse.HEARTBEAT_SECONDS, until=stopping)) as merged:
        async for chunk in merged:
            if not await is_active():
                return
            yield HEARTBEAT if chunk is None else chunk


async def _next(source: AsyncGenerator[T, None]) -> T:
    return await anext(source)
