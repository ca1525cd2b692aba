"""A session's page: its log as a conversation, a page of events at a time, and why it is as it is."""

import asyncio
import base64
import binascii
import re
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.dashboard import pages
from holdfast.dashboard.desk import Desk, of
from holdfast.dashboard.story import EMBEDDABLE, Item, Story
from holdfast.engine import why as engine_why
from holdfast.engine.why import Why
from holdfast.interop import people
from holdfast.interop.export import jsonl
from holdfast.model.entry import Entry
from holdfast.model.errors import Invalid, NotFound
from holdfast.model.event import ModelSaid, ToolEnded, UserSaid
from holdfast.model.message import Image, Text
from holdfast.model.session import Session
from holdfast.store import log
from holdfast.store import sessions as stored
from holdfast.store.database import Transaction
from holdfast.store.inputs import Input

EVENTS = 100
"""Events of a page: what fills some screens, whatever the log's length."""
BEFORE = 30
"""How many events are shown above the one that was asked for."""
SAFE_NAME = re.compile(r"[A-Za-z0-9._-]{1,200}")
MAGIC = ((b"\x89PNG", "image/png"), (b"\xff\xd8\xff", "image/jpeg"), (b"GIF8", "image/gif"), (b"RIFF", "image/webp"))


def read(tx: Transaction, ref: str) -> Session:
    """The session of an id, an alias or a title, in the trash or not. Raises NotFound or Ambiguous."""
    return stored.resolve(tx, ref, trashed=True).session


async def show(request: Request) -> Response:
    desk = of(request)
    session = await desk.database.read(read, request.path_params["id"])
    at = _number(request, "at", session.seq)
    first, last = _window(session, at)
    items = await told(desk, session.id, first, last)
    return await asyncio.to_thread(
        pages.page,
        request,
        "session.html",
        session=session,
        first=first,
        last=last,
        at=at if at != session.seq else 0,
        items=items,
        trash=session.summary.trashed_at is not None,
        **deeds_of(session),
        **await about(desk, session),
    )


def _window(session: Session, at: int) -> tuple[int, int]:
    if at >= session.seq:
        return max(1, session.seq - EVENTS + 1), session.seq
    first = max(1, at - BEFORE)
    return first, min(session.seq, first + EVENTS - 1)


def _number(request: Request, name: str, default: int) -> int:
    value = request.query_params.get(name, "")
    if not value:
        return default
    if not (value.isascii() and value.isdecimal()) or len(value) > 15:
        raise Invalid(f"{name} must be a whole number")
    return int(value)


async def about(desk: Desk, session: Session) -> dict[str, Any]:
    """What stands beside the conversation."""
    questions = await desk.engine.questions(session.id)
    running = await desk.engine.running(session.id)
    return {
        "questions": questions,
        "waiting": await waiting(desk, session.id),
        "processes": running,
        "now": desk.now,
    }


async def waiting(desk: Desk, session_id: str) -> list[tuple[str, str]]:
    """Words that wait for their turn, each with what they do meanwhile."""
    return [(one.mode, _words(one)) for one in await desk.engine.waiting(session_id)]


def _words(item: Input) -> str:
    """What somebody said and nobody has answered yet, in a line."""
    parts = item.said.parts if item.said is not None else ()
    return " ".join(" ".join(part.text for part in parts if isinstance(part, Text)).split())


def deeds_of(session: Session) -> dict[str, Any]:
    """What makes sense to do to a session as it is. Pure."""
    summary, state = session.summary, session.state
    if summary.trashed_at is not None:
        return {"deeds": ["restore"]}
    fits = {
        "resume": summary.open_turn is not None and state in ("interrupted", "ended"),
        "undo": summary.turn_count > 0 and state != "running",
        "uncompact": summary.epoch > 0,
        "pin": not summary.pinned,
        "unpin": bool(summary.pinned),
        "end": state not in ("ended", "running"),
        "reopen": state in ("ended", "quarantined"),
        "trash": True,
    }
    return {"deeds": [name for name, does in fits.items() if does]}


async def told(desk: Desk, session_id: str, first: int, last: int) -> list[Item]:
    """The items of some events. They are drawn in a thread: a page of long texts must not hold up anybody else."""
    story = Story()
    story.tell(await desk.database.read(log.read, session_id, first=first, last=last))
    return list(story.items.values())


async def older(request: Request) -> Response:
    """The events before one: what comes in when somebody scrolls up."""
    desk = of(request)
    session = await desk.database.read(read, request.path_params["id"])
    before = min(_number(request, "before", session.seq + 1), session.seq + 1)
    first = max(1, before - EVENTS)
    items = await told(desk, session.id, first, before - 1)
    return await asyncio.to_thread(pages.piece, request, "older.html", session=session, items=items, first=first)


async def why(request: Request) -> Response:
    desk = of(request)

    def work(tx: Transaction) -> Why:
        return engine_why.why(tx, read(tx, request.path_params["id"]), desk.engine.known, desk.ours)

    return pages.piece(request, "why.html", why=await desk.database.read(work))


async def _entry(request: Request) -> tuple[Session, Entry]:
    seq = request.path_params["seq"]

    def work(tx: Transaction) -> tuple[Session, list[Entry]]:
        session = read(tx, request.path_params["id"])
        return session, log.read(tx, session.id, first=seq, last=seq)

    session, found = await of(request).database.read(work)
    if not found:
        raise NotFound(f"session {session.id} has no event {seq}")
    return session, found[0]


async def raw(request: Request) -> Response:
    """All that an event says, as plain text: what is too long for a page."""
    _, entry = await _entry(request)
    event = entry.event
    parts = event.parts if isinstance(event, UserSaid | ModelSaid | ToolEnded) else ()
    text = "\n".join(part.text for part in parts if isinstance(part, Text)) or getattr(event, "summary", "")
    headers = {"content-type": "text/plain; charset=utf-8"}
    return Response(text.encode("utf-8", "backslashreplace"), headers=headers)


async def image(request: Request) -> Response:
    """A picture of a message: only kinds that cannot run, told by their first bytes."""
    session, entry = await _entry(request)
    event, number = entry.event, request.path_params["number"]
    parts = event.parts if isinstance(event, UserSaid | ModelSaid | ToolEnded) else ()
    part = parts[number] if number < len(parts) else None
    if not isinstance(part, Image):
        raise NotFound("there is no such picture")
    files = of(request).settings.home / "files" / session.id
    data = await asyncio.to_thread(_picture, part.url, files)
    kind = next((kind for magic, kind in MAGIC if data.startswith(magic)), None)
    if kind is None:
        raise NotFound("this is no picture that can be shown")
    return Response(data, headers={"cache-control": "private, max-age=86400"}, media_type=kind)


def _picture(url: str, files: Path) -> bytes:
    if EMBEDDABLE.match(url):
        try:
            return base64.b64decode(url.partition(",")[2], validate=False)
        except binascii.Error as e:
            raise NotFound("this picture is damaged") from e
    name = url.removeprefix("file:")
    if not SAFE_NAME.fullmatch(name) or name.startswith("."):
        raise NotFound("there is no such picture")
    try:
        return (files / name).read_bytes()
    except OSError as e:
        raise NotFound("this picture is no longer there") from e


async def export(request: Request) -> Response:
    """The whole session as a file: one that loses nothing, or one for people."""
    desk, form = of(request), request.query_params.get("format", "jsonl")
    session = await desk.database.read(read, request.path_params["id"])
    if form not in ("jsonl", "md", "html"):
        raise Invalid("a session is exported as jsonl, md or html")
    headers = {"content-disposition": f'attachment; filename="{session.id}.{form}"'}
    if form == "jsonl":
        lines = _encoded(jsonl(desk.database, session.id))
        return StreamingResponse(lines, headers=headers, media_type="application/x-ndjson")
    session, entries = await desk.engine.read(session.id)
    draw = people.markdown if form == "md" else people.page
    text = await asyncio.to_thread(draw, session, entries)
    kind = "text/markdown" if form == "md" else "text/html"
    return Response(text.encode("utf-8", "backslashreplace"), headers=headers, media_type=kind)


async def _encoded(lines: AsyncIterator[str]) -> AsyncIterator[bytes]:
    async for line in lines:
        yield line.encode("ascii", "backslashreplace")


def drawn(item: Item, session: Session) -> Markup:
    """An item as it stands on the page."""
    return pages.fragment("item.html", item=item, session=session)
