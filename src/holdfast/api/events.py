"""The log of a session as it grows: pages of events, or a stream of them with live text in between.

The promise to a client of the stream. Each committed event comes once, in the order of its number, which is its `id:`; a
client that comes again with the last one it has seen misses nothing, whatever has happened to the connection or the
server. Live text is only a look at the reply in the making: a `delta` at place 0 begins it (anew), any other goes on from the
last; the event `model_said`, which comes in the end, has all of it. So the whole text is always what the events say.
"""

from collections.abc import AsyncGenerator
from contextlib import aclosing
from typing import Any

from starlette.responses import Response

from holdfast import eventstream
from holdfast.api import asked, stream
from holdfast.api.doors import Call, session_of
from holdfast.api.errors import Refusal, translate
from holdfast.engine.bus import Failed, Live, News
from holdfast.interop import shapes
from holdfast.model.entry import GENESIS, Entry, encode, link
from holdfast.model.errors import HoldfastError, Unavailable
from holdfast.model.event import ModelSaid, TurnEnded
from holdfast.store import log, sessions
from holdfast.store.database import Transaction

Json = dict[str, Any]
STREAM = "text/event-stream"
RETRY = b"retry: 1000\n\n"
"""How soon a browser comes again, in milliseconds."""
LAST = "last-event-id"


async def events(call: Call) -> Json | Response:
    """The log behind an event: one page of it, or with `Accept: text/event-stream` all that is there and all that comes."""
    query: asked.PageAsked = call.query
    session = await session_of(call)
    if STREAM in call.request.headers.get("accept", "") and call.request.method != "HEAD":
        after = _last_seen(call, query.after)
        headers = {"x-session-id": session.id, "x-session-epoch": str(session.summary.epoch)}
        return eventstream.EventStream(_pieces(call, session.id, after), headers)

    def work(tx: Transaction) -> Json:
        current = sessions.get(tx, session.id)
        entries = log.read_page(tx, current, after=query.after, limit=query.limit)
        last = entries[-1].seq if entries else current.seq
        return {
            "session_id": current.id,
            "events": [shapes.event(entry) for entry in entries],
            "seq": current.seq,
            "next": last if last < current.seq else None,
        }

    return await call.house.database.read(work)


def _last_seen(call: Call, after: int) -> int:
    """Where to go on. A client that comes again repeats its address, so what it says about the last event counts more."""
    given = call.request.headers.get(LAST, "").strip()
    if not given:
        return after
    if not (given.isascii() and given.isdecimal() and len(given) <= 15):
        raise Refusal(400, "invalid_header", "Last-Event-ID must be the number of an event", "Last-Event-ID")
    return int(given)


async def _pieces(call: Call, session_id: str, after: int) -> AsyncGenerator[bytes, None]:
    """The stream. It ends only when the server leaves, or when the log cannot be read."""
    house = call.house
    yield RETRY
    house.tally.streams += 1
    try:
        teller = Teller(after, await house.database.read(_hash_at, session_id, after))
        news = house.engine.events(session_id, after=after)
        items = eventstream.with_heartbeats(news, house.heartbeat_seconds, until=house.leaving)
        async with aclosing(items) as told:
            async for item in told:
                if item is None:
                    yield stream.HEARTBEAT
                elif piece := teller.tell(item):
                    yield piece
        error: HoldfastError = Unavailable("the server is about to stop; come again with the last event's number")
    except HoldfastError as e:
        error = e
    finally:
        house.tally.streams -= 1
    yield _event(translate(error).body(), name="end")


def _hash_at(tx: Transaction, session_id: str, seq: int) -> str:
    """The hash that the next event is chained to; empty if it does not follow one that is there."""
    entries = log.read(tx, session_id, first=seq, last=seq) if seq else []
    return entries[0].hash if entries else GENESIS if not seq else ""


class Teller:
    """Puts the news of a session into words for one client, who is told nothing twice."""

    def __init__(self, after: int = 0, hash_: str = GENESIS) -> None:
        self._told = after
        """The last event that the client has."""
        self._hash = hash_
        """Its hash, from which that of the next follows: news that come straight from the turn have none yet."""
        self._settled = after
        """The last event that ended a reply: words said before it are in it."""
        self._known = 0
        """How many characters of the reply in the making the client has."""

    def tell(self, item: News) -> bytes:
        if isinstance(item, Failed):
            return b""  # the turn is left to recovery, which writes down what it does
        if isinstance(item, Live):
            return self._live(item)
        self._told = item.seq
        self._hash = item.hash or link(self._hash, item.kind, item.at, encode(item.event))
        item = Entry(item.seq, item.at, item.event, self._hash)
        if isinstance(item.event, ModelSaid | TurnEnded):
            self._settled, self._known = item.seq, 0
        return _event(shapes.event(item), id=str(item.seq))

    def _live(self, live: Live) -> bytes:
        """Words that the client does not have yet, unless they belong to a reply that it knows, or does not know of yet."""
        if not self._settled <= live.behind <= self._told:
            return b""
        if live.kind != "text":
            self._known = 0 if live.kind == "restarted" else self._known
            return self._delta(live, live.text, 0)
        if live.at > self._known:
            return b""  # the client was too slow for some of them; the event will have them all
        text, at = live.text[self._known - live.at :], self._known
        self._known += len(text)
        return self._delta(live, text, at) if text else b""

    def _delta(self, live: Live, text: str, at: int) -> bytes:
        return _event({"turn_id": live.turn_id, "kind": live.kind, "text": text, "at": at}, name="delta")


def _event(data: Json, *, name: str = "", id: str = "") -> bytes:
    """As `stream.event`, in ASCII: a tool may have put out anything."""
    head = (f"id: {id}\n" if id else "") + (f"event: {name}\n" if name else "")
    return f"{head}data: {shapes.dump(data)}\n\n".encode()
