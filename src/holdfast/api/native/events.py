"""The log of a session: pages of events, or a stream of events with live text in between.

Guarantees of the stream. Each committed event is sent once, in the order of its sequence number, which is its `id:`. A
client that reconnects with the last id it received misses nothing, whatever happened to the connection or the server.
Live text only previews the reply being generated: a `delta` at position 0 starts it (again), any other continues the
last one; the event `model_said` at the end contains all of it. The events alone always give the complete text.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing

from starlette.responses import Response

from holdfast import sse
from holdfast.api.errors import ApiError, translate
from holdfast.api.native import request_models
from holdfast.api.native.endpoint import EndpointCall, load_session
from holdfast.api.native.response_models import EventListResponse
from holdfast.engine.streaming.bus import LiveText, StreamItem, TurnBroke
from holdfast.interop.documents.sessions import EventItem
from holdfast.interop.serialization import Json, dump
from holdfast.model.entry import GENESIS, Entry, encode, link
from holdfast.model.errors import HoldfastError, Unavailable
from holdfast.model.event import ModelSaid, TurnEnded
from holdfast.model.text import parse_decimal
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions

STREAM = "text/event-stream"
LAST = "last-event-id"


async def events(call: EndpointCall) -> EventListResponse | Response:
    """Read events after a sequence number: one page, or with `Accept: text/event-stream` all past and future events."""
    query: request_models.PageRequest = call.query
    session = await load_session(call)
    if STREAM in call.request.headers.get("accept", "") and call.request.method != "HEAD":
        after = _last_seen(call, query.after)
        headers = {"x-session-id": session.id, "x-session-epoch": str(session.summary.epoch)}
        return sse.EventStream(_pieces(call, session.id, after), headers)

    def work(tx: Transaction) -> EventListResponse:
        current = sessions.get(tx, session.id)
        entries = log.read_page(tx, current, after=query.after, limit=query.limit)
        last = entries[-1].seq if entries else current.seq
        return EventListResponse(
            session_id=current.id,
            events=[EventItem.from_entry(entry) for entry in entries],
            seq=current.seq,
            next=last if last < current.seq else None,
        )

    return await call.context.database.read(work)


def _last_seen(call: EndpointCall, after: int) -> int:
    """Return where to resume. A reconnecting client repeats its URL, so its Last-Event-ID overrides `after`."""
    given = call.request.headers.get(LAST, "").strip()
    if not given:
        return after
    if (seq := parse_decimal(given)) is None:
        raise ApiError(400, "invalid_header", "Last-Event-ID must be the sequence number of an event", "Last-Event-ID")
    return seq


async def _pieces(call: EndpointCall, session_id: str, after: int) -> AsyncGenerator[bytes, None]:
    """Generate the stream. It ends only when the server shuts down or the log cannot be read."""
    context = call.context
    yield sse.RETRY
    context.counter.streams += 1
    try:
        encoder = EventStreamEncoder(after, await context.database.read(_hash_at, session_id, after))
        news = context.engine.watch(session_id, after=after, so_far=True)
        items = sse.with_heartbeats(news, context.heartbeat_seconds, until=context.leaving)
        async with aclosing(items) as received:
            async for item in received:
                if item is None:
                    yield sse.HEARTBEAT
                elif piece := encoder.encode(item):
                    yield piece
        error: HoldfastError = Unavailable("shutting down; reconnect with Last-Event-ID")
    except HoldfastError as e:
        error = e
    finally:
        context.counter.streams -= 1
    yield _format_event(translate(error).body(), name="end")


def _hash_at(tx: Transaction, session_id: str, seq: int) -> str:
    """Return the hash that the next event is chained to; empty if event `seq` does not exist."""
    entries = log.read(tx, session_id, first=seq, last=seq) if seq else []
    return entries[0].hash if entries else GENESIS if not seq else ""


class EventStreamEncoder:
    """Encodes the events of a session for one client and sends nothing twice."""

    def __init__(self, after: int = 0, hash_: str = GENESIS) -> None:
        self._sent = after
        """Sequence number of the last event sent."""
        self._hash = hash_
        """Its hash, from which the next one follows: events straight from the turn have none yet."""
        self._settled = after
        """The last event that completed a reply: it contains all live text before it."""
        self._known = 0
        """Characters sent of the reply being generated."""

    def encode(self, item: StreamItem) -> bytes:
        if isinstance(item, TurnBroke):
            return b""  # recovery takes over the turn and records what it does
        if isinstance(item, LiveText):
            return self._live(item)
        self._sent = item.seq
        self._hash = item.hash or link(self._hash, item.kind, item.at, encode(item.event))
        item = Entry(item.seq, item.at, item.event, self._hash)
        if isinstance(item.event, ModelSaid | TurnEnded):
            self._settled, self._known = item.seq, 0
        return _format_event(EventItem.from_entry(item), id=str(item.seq))

    def _live(self, live: LiveText) -> bytes:
        """Send live text that is new to the client, unless its reply is already sent or starts after an event not sent yet."""
        if not self._settled <= live.behind <= self._sent:
            return b""
        if live.kind != "text":
            self._known = 0 if live.kind == "restarted" else self._known
            return self._delta(live, live.text, 0)
        if live.at > self._known:
            return b""  # the client missed some text; the event will contain it all
        text, at = live.text[self._known - live.at :], self._known
        self._known += len(text)
        return self._delta(live, text, at) if text else b""

    def _delta(self, live: LiveText, text: str, at: int) -> bytes:
        return _format_event({"turn_id": live.turn_id, "kind": live.kind, "text": text, "at": at}, name="delta")


def _format_event(data: EventItem | Json, *, name: str = "", id: str = "") -> bytes:
    """Format an event in ASCII: tool output may contain lone surrogates, which UTF-8 cannot encode."""
    return sse.format_event(dump(data).encode("ascii"), name=name, id=id)
