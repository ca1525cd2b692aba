"""The Space page: sends the sessions and their state changes of the last day; a script in the page draws them."""

import asyncio
from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard import templating
from holdfast.dashboard.context import get_context
from holdfast.dashboard.peers import PeerSession
from holdfast.dashboard.timeline import STATE_AFTER, TIMELINE_SPAN
from holdfast.model.sanitize import one_line
from holdfast.store.database import Transaction
from holdfast.store.repos import dashboard_queries, workers
from holdfast.store.repos.dashboard_queries import RecentSession, TimelineEvent

MAX_SESSIONS = 4_000
MAX_TITLE = 80
CODES = {
    "waiting": 0,
    "thinking": 1,
    "tool": 2,
    "asking": 3,
    "interrupted": 4,
    "quarantined": 5,
    "ended": 6,
    "reaped": 7,
}
"""States as numbers, which keeps the data of a day small."""
STATE_BEFORE = {
    "turn_started": "waiting",
    "ended": "waiting",
    "compacted": "waiting",
    "reopened": "ended",
    "tool_ended": "tool",
    "approval_answered": "asking",
    "recovered": "interrupted",
}
"""The state of a session before its first event of the day, by the kind of that event; thinking for any other kind."""
REAPED = '"reason":"reaped"'
RUNNING_STATES = {"tool_started": "tool", "approval_asked": "asking"}


async def show_space(request: Request) -> Response:
    return templating.page_response(request, "space.html", now=get_context(request).now, limit=MAX_SESSIONS)


def display_state(recent: RecentSession) -> str:
    """The state of a session on the page. Pure."""
    session = recent.session
    if session.state == "ended":
        return "reaped" if session.summary.end_reason == "reaped" else "ended"
    if session.state == "running":
        return RUNNING_STATES.get(recent.last_kind, "thinking")
    return session.state


async def send_sessions(request: Request) -> Response:
    """Send all sessions of the last day and all with an open turn, including those of other servers, with their groups."""
    context = get_context(request)
    now = context.now
    recent, alive = await context.database.read(_read_sessions, now - TIMELINE_SPAN)
    alive_by_id = {worker.id: worker for worker in alive}
    described = [_describe_session(one, alive_by_id) for one in recent]
    for peer in context.peers.peers.values():
        described += _describe_peer_sessions(
            peer.name, peer.state != "online", [] if peer.activity is None else peer.activity.sessions
        )
    content = {"at": now // 1_000_000, "sprites": described, "cut": len(recent) >= MAX_SESSIONS}
    return Response(await asyncio.to_thread(msgspec.json.encode, content), media_type="application/json")


def _read_sessions(tx: Transaction, since: int) -> tuple[list[RecentSession], Sequence[workers.Worker]]:
    return dashboard_queries.list_recent_sessions(tx, since=since, limit=MAX_SESSIONS), workers.list_alive(tx)


def _describe_session(recent: RecentSession, alive: dict[str, workers.Worker]) -> dict[str, object]:
    session = recent.session
    summary = session.summary
    return {
        "id": session.id,
        "t": one_line(session.display_title)[:MAX_TITLE],
        "s": CODES[display_state(recent)],
        "g": _group(session.worker_id, summary.channel, summary.source, alive),
        "src": summary.source,
        "c": summary.created_at // 1_000_000,
    }


def _group(worker_id: str | None, channel: str | None, source: str, alive: dict[str, workers.Worker]) -> str:
    """The group of a session: its messaging platform, else the worker that owns it, else its source."""
    if source == "gateway" and channel:
        return f"gateway {channel.partition(':')[0]}"
    worker = alive.get(worker_id or "")
    if worker is not None:
        return f"{worker.kind} {worker.host.partition('#')[0]}:{worker.pid}"
    return source


def _describe_peer_sessions(name: str, offline: bool, sessions: Sequence[PeerSession]) -> list[dict[str, object]]:
    """Sessions of another server, with their last known state if it is offline."""
    codes = {"running": 1, "asking": 3, "waiting": 0, "interrupted": 4, "quarantined": 5, "ended": 6}
    group = f"{name} (offline)" if offline else name
    return [
        {
            "id": one.id,
            "t": one_line(one.title or one.id)[:MAX_TITLE],
            "s": codes.get(one.state or "", 0),
            "g": group,
            "src": "peer",
            "c": 0,
            "peer": name,
        }
        for one in sessions
    ]


async def send_day(request: Request) -> Response:
    """Send the state changes of the last day, for the timeline: the session ids, then [session index, second, state]."""
    context = get_context(request)
    now = context.now
    events = await context.timeline.events(now)
    content = await asyncio.to_thread(_encode_changes, events, now)
    return Response(content, media_type="application/json")


def state_changes(events: Sequence[TimelineEvent], now: int) -> tuple[list[str], list[tuple[int, int, int]]]:
    """The session ids, and each state change as session index, second of the day and state. Pure.

    A session that is older than the first known event starts with the state that its first event implies.
    """
    begin, known = now - TIMELINE_SPAN, _known_since(events, now)
    indexes: dict[str, int] = {}
    last: dict[str, int] = {}
    changes: list[tuple[int, int, int]] = []

    def add_change(session_id: str, state: str, at: int) -> None:
        code = CODES[state]
        if last.get(session_id) != code:
            last[session_id] = code
            index = indexes.setdefault(session_id, len(indexes))
            changes.append((index, max(at - begin, 0) // 1_000_000, code))

    for one in events:
        if one.session_id not in indexes and one.kind != "session_opened":
            add_change(one.session_id, STATE_BEFORE.get(one.kind, "thinking"), known)
        add_change(one.session_id, _state_after(one), one.at)
    return list(indexes), changes


def _known_since(events: Sequence[TimelineEvent], now: int) -> int:
    """The time from which all events are known."""
    return now - TIMELINE_SPAN if len(events) < dashboard_queries.MAX_TIMELINE_EVENTS else events[0].at


def _state_after(event: TimelineEvent) -> str:
    """The state of a session after an event."""
    reaped = event.kind == "ended" and REAPED in (event.body or "")
    return "reaped" if reaped else STATE_AFTER[event.kind]


def _encode_changes(events: Sequence[TimelineEvent], now: int) -> bytes:
    sessions, changes = state_changes(events, now)
    begin, known = now - TIMELINE_SPAN, _known_since(events, now)
    since = max(known - begin, 0) // 1_000_000
    content = {"begin": begin // 1_000_000, "known": since, "sessions": sessions, "changes": changes}
    return msgspec.json.encode(content)
