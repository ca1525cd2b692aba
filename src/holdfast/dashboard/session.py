"""A session's page: its log as a conversation, a page of events at a time, and an explanation of its state."""

import asyncio
import logging
from collections.abc import AsyncIterator
from typing import Any

from markupsafe import Markup
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse

from holdfast.dashboard import templating
from holdfast.dashboard.context import DashboardContext, get_context
from holdfast.dashboard.display_state import read_failure
from holdfast.engine import explain
from holdfast.engine.explain import Explanation
from holdfast.engine.process_port import list_running
from holdfast.interop import session_tree
from holdfast.interop.export.formats import FORMATS, render_session
from holdfast.interop.export.jsonl import export_lines
from holdfast.interop.pages import images
from holdfast.interop.pages.rendering import session_links
from holdfast.interop.pages.transcript import PageItem, PageTranscript
from holdfast.interop.session_tree import TreeNode
from holdfast.model.entry import Entry
from holdfast.model.errors import HoldfastError, Invalid, NotFound
from holdfast.model.event import ModelSaid, Rewound, ToolEnded, UserSaid
from holdfast.model.message import Text
from holdfast.model.session import Session
from holdfast.model.text import parse_decimal
from holdfast.store.database import Transaction
from holdfast.store.repos import approvals, input_queue, log, plans, turn_lookup
from holdfast.store.repos import sessions as stored
from holdfast.store.repos.input_queue import Input

logger = logging.getLogger(__name__)
PAGE_EVENTS = 100
"""Events that a page loads at once."""
PRECEDING_EVENTS = 30
"""Events shown above the requested one."""


def load_session(tx: Transaction, ref: str) -> Session:
    """Load a session by id, alias or title, also from the trash. Raises NotFound or Ambiguous."""
    return stored.resolve(tx, ref, trashed=True).session


async def show_session(request: Request) -> Response:
    context = get_context(request)
    session = await context.database.read(load_session, request.path_params["id"])
    at = _parse_int(request, "at", session.seq)
    first, last = _window(session, at)
    items, details = await load_items(context, session.id, first, last), await load_details(context, session)
    return await asyncio.to_thread(
        templating.page_response,
        request,
        "session.html",
        session=session,
        first=first,
        last=last,
        at=at if at != session.seq else 0,
        items=items,
        links=session_links(session),
        trash=session.summary.trashed_at is not None,
        actions=available_actions(
            session, details["failure"], can_undo=details["can_undo"], can_compact=details["can_compact"]
        ),
        **details,
    )


def _window(session: Session, at: int) -> tuple[int, int]:
    if at >= session.seq:
        return max(1, session.seq - PAGE_EVENTS + 1), session.seq
    first = max(1, at - PRECEDING_EVENTS)
    return first, min(session.seq, first + PAGE_EVENTS - 1)


def _parse_int(request: Request, name: str, default: int) -> int:
    value = request.query_params.get(name, "")
    if not value:
        return default
    if (number := parse_decimal(value)) is None:
        raise Invalid(f"{name} must be a whole number")
    return number


async def load_details(context: DashboardContext, session: Session) -> dict[str, Any]:
    """Questions, queued messages, processes, the failure of the last turn, the plan and the goal, shown beside the conversation."""
    questions = await context.database.read(approvals.list_unanswered_in_tree, session.id)
    processes = await list_running(context.database, context.engine.processes, session.id)
    return {
        "questions": questions,
        "queued": await load_queue(context, session.id),
        "processes": processes,
        "failure": await context.database.read(read_failure, session),
        "can_undo": await context.database.read(_can_undo, session),
        "can_compact": await _can_compact(context, session),
        "plan": await context.database.read(plans.current, session.id),
        "goal": await context.engine.goals.get(session.id) if session.summary.goal else None,
        "children": await context.database.read(_read_children, session),
        "now": context.now,
    }


def _can_undo(tx: Transaction, session: Session) -> bool:
    """Whether a turn is left that no rewind has undone."""
    if not session.summary.turn_count:
        return False
    started = turn_lookup.find_newest(tx, session.id, "turn_started")
    rewound = turn_lookup.find_newest(tx, session.id, "rewound", after=started)
    if not rewound:
        return started > 0
    event = log.read(tx, session.id, first=rewound, last=rewound)[0].event
    first = turn_lookup.find_oldest(tx, session.id, "turn_started")
    return isinstance(event, Rewound) and 0 < first <= event.to_seq


async def _can_compact(context: DashboardContext, session: Session) -> bool:
    """Whether a compaction may be worthwhile. Not of a session that cannot be read, or has a turn."""
    if session.summary.open_turn is not None:
        return False
    try:
        return await context.engine.can_compact(session)
    except HoldfastError as e:
        logger.info("session %s cannot be compacted: %s", session.id, e)
        return False


def _read_children(tx: Transaction, session: Session) -> list[TreeNode]:
    return session_tree.list_descendants(tx, [session])[1:]


async def load_queue(context: DashboardContext, session_id: str) -> list[tuple[str, str]]:
    """Queued messages, each with its mode."""
    return [(one.mode, _preview(one)) for one in await context.database.read(input_queue.list_waiting, session_id)]


def _preview(item: Input) -> str:
    """A queued message on one line; for the result of a sub-agent, whose it is."""
    for ended in item.completions:
        return f"Result of sub-agent {ended.title or ended.child_id}"
    parts = item.said.parts if item.said is not None else ()
    return " ".join(" ".join(part.text for part in parts if isinstance(part, Text)).split())


def available_actions(
    session: Session, failure: str = "", *, can_undo: bool = False, can_compact: bool = False
) -> list[str]:
    """The actions that a session's state allows. Pure."""
    summary, state = session.summary, session.state
    if summary.trashed_at is not None:
        return ["restore"]
    is_free = state not in ("running", "asking")
    available = {
        "resume": summary.open_turn is not None and state in ("interrupted", "ended"),
        "retry": bool(failure),
        "undo": can_undo and is_free,
        "compact": can_compact and is_free,
        "uncompact": summary.epoch > 0 and is_free,
        "pin": not summary.pinned,
        "unpin": bool(summary.pinned),
        "end": state != "ended" and is_free,
        "reopen": state in ("ended", "quarantined"),
        "trash": is_free,
    }
    return [name for name, is_available in available.items() if is_available]


async def load_items(context: DashboardContext, session_id: str, first: int, last: int) -> list[PageItem]:
    """The page items of a range of events. Long changes take seconds to compare, so it is done in a thread."""
    transcript = PageTranscript()
    entries = await context.database.read(log.read, session_id, first=first, last=last)
    await asyncio.to_thread(transcript.add_all, entries)
    return list(transcript.items.values())


async def show_older(request: Request) -> Response:
    """The events before a given one, loaded when the user scrolls up."""
    context = get_context(request)
    session = await context.database.read(load_session, request.path_params["id"])
    before = min(_parse_int(request, "before", session.seq + 1), session.seq + 1)
    first = max(1, before - PAGE_EVENTS)
    items = await load_items(context, session.id, first, before - 1)
    return await asyncio.to_thread(
        templating.fragment_response,
        request,
        "older.html",
        session=session,
        items=items,
        first=first,
        links=session_links(session),
    )


async def explain_session(request: Request) -> Response:
    context = get_context(request)

    def work(tx: Transaction) -> Explanation:
        return explain.why(tx, load_session(tx, request.path_params["id"]), context.engine.explain, context.identity)

    return templating.fragment_response(request, "explanation.html", explanation=await context.database.read(work))


async def _load_entry(request: Request) -> tuple[Session, Entry]:
    seq = request.path_params["seq"]

    def work(tx: Transaction) -> tuple[Session, list[Entry]]:
        session = load_session(tx, request.path_params["id"])
        return session, log.read(tx, session.id, first=seq, last=seq)

    session, found = await get_context(request).database.read(work)
    if not found:
        raise NotFound(f"session {session.id} has no event {seq}")
    return session, found[0]


async def send_raw(request: Request) -> Response:
    """The full text of an event, for texts that the page truncates."""
    _, entry = await _load_entry(request)
    event = entry.event
    parts = event.parts if isinstance(event, UserSaid | ModelSaid | ToolEnded) else ()
    text = "\n".join(part.text for part in parts if isinstance(part, Text)) or getattr(event, "summary", "")
    headers = {"content-type": "text/plain; charset=utf-8"}
    return Response(text.encode("utf-8", "backslashreplace"), headers=headers)


async def send_image(request: Request) -> Response:
    """An image of a message."""
    session, entry = await _load_entry(request)
    home, number = get_context(request).settings.home, request.path_params["number"]
    data, media_type = await asyncio.to_thread(images.read_image, home, session.id, entry, number)
    return Response(data, headers={"cache-control": "private, max-age=86400"}, media_type=media_type)


async def export_session(request: Request) -> Response:
    """Export the session as lossless JSONL, or as Markdown or HTML for reading."""
    context, format_name = get_context(request), request.query_params.get("format", "jsonl")
    session = await context.database.read(load_session, request.path_params["id"])
    if format_name not in FORMATS:
        raise Invalid(f"format must be {', '.join(FORMATS)}, not {format_name!r}")
    headers = {"content-disposition": f'attachment; filename="{session.id}.{format_name}"'}
    if format_name == "jsonl":
        lines = _encode_lines(export_lines(context.database, session.id))
        return StreamingResponse(lines, headers=headers, media_type="application/x-ndjson")
    session, entries = await context.engine.read(session.id)
    text = await asyncio.to_thread(render_session, session, entries, format_name, context.settings.home)
    media_type = "text/markdown" if format_name == "md" else "text/html"
    return Response(text.encode("utf-8", "backslashreplace"), headers=headers, media_type=media_type)


async def _encode_lines(lines: AsyncIterator[str]) -> AsyncIterator[bytes]:
    async for line in lines:
        yield line.encode("ascii", "backslashreplace")


def render_item(item: PageItem, session: Session) -> Markup:
    """Render an item as HTML."""
    return templating.render_fragment("item.html", item=item, links=session_links(session))
