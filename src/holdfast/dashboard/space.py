"""Space: one picture of all sessions. The page draws; what is here tells it what there is, now and in the last day."""

import asyncio
from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard import pages
from holdfast.dashboard.day import SPAN, STATES
from holdfast.dashboard.desk import of
from holdfast.dashboard.fleet import PeerSession
from holdfast.interop.visible import one_line
from holdfast.store import board, workers
from holdfast.store.board import Moment, Sprite
from holdfast.store.database import Transaction

MOST = 4_000
TITLE = 80
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
"""States by number: a day has many of them."""
BEFORE = {
    "turn_started": "waiting",
    "ended": "waiting",
    "compacted": "waiting",
    "reopened": "ended",
    "tool_ended": "tool",
    "approval_answered": "asking",
    "recovered": "interrupted",
}
"""What a session was doing before its first moment of the day; for any other kind, it was thinking."""
REAPED = '"reason":"reaped"'
DOING = {"tool_started": "tool", "approval_asked": "asking"}


async def show(request: Request) -> Response:
    return pages.page(request, "space.html", now=of(request).now, most=MOST)


def state_of(sprite: Sprite) -> str:
    """What a session is doing, for the picture. Pure."""
    session = sprite.session
    if session.state == "ended":
        return "reaped" if session.summary.end_reason == "reaped" else "ended"
    if session.state == "running":
        return DOING.get(sprite.last_kind, "thinking")
    return session.state


async def data(request: Request) -> Response:
    """Every session of the last day and all with an open turn, by group; those of other servers too."""
    desk = of(request)
    now = desk.now
    sprites, alive = await desk.database.read(_read, now - SPAN)
    kinds = {worker.id: worker for worker in alive}
    shown = [_sprite(one, kinds) for one in sprites]
    for peer in desk.fleet.peers.values():
        shown += _of_peer(peer.name, peer.state != "here", [] if peer.activity is None else peer.activity.sessions)
    content = {"at": now // 1_000_000, "sprites": shown, "cut": len(sprites) >= MOST}
    return Response(await asyncio.to_thread(msgspec.json.encode, content), media_type="application/json")


def _read(tx: Transaction, since: int) -> tuple[list[Sprite], Sequence[workers.Worker]]:
    return board.sprites(tx, since=since, limit=MOST), workers.alive(tx)


def _sprite(sprite: Sprite, alive: dict[str, workers.Worker]) -> dict[str, object]:
    session = sprite.session
    summary = session.summary
    return {
        "id": session.id,
        "t": _clean(summary.title or summary.preview or session.id)[:TITLE],
        "s": CODES[state_of(sprite)],
        "g": _group(session.worker_id, summary.channel, summary.source, alive),
        "src": summary.source,
        "c": summary.created_at // 1_000_000,
    }


def _clean(text: str) -> str:
    return one_line(text).encode("utf-8", "backslashreplace").decode()


def _group(worker_id: str | None, channel: str | None, source: str, alive: dict[str, workers.Worker]) -> str:
    """Where a session stands: at the platform it belongs to, else at the worker that has it, else with its like."""
    if source == "gateway" and channel:
        return f"gateway {channel.partition(':')[0]}"
    worker = alive.get(worker_id or "")
    if worker is not None:
        return f"{worker.kind} {worker.host.partition('#')[0]}:{worker.pid}"
    return source


def _of_peer(name: str, away: bool, sessions: Sequence[PeerSession]) -> list[dict[str, object]]:
    """Sessions of another server; those of one that is away as they were."""
    names = {"running": 1, "waiting": 0, "interrupted": 4, "quarantined": 5, "ended": 6}
    group = f"{name} (away)" if away else name
    return [
        {
            "id": one.id,
            "t": _clean(one.title or one.id)[:TITLE],
            "s": names.get(one.state or "", 0),
            "g": group,
            "src": "peer",
        }
        | {"c": 0, "peer": name}
        for one in sessions
    ]


async def day(request: Request) -> Response:
    """The last day as changes of state, for scrubbing: the sessions once, then [session, second, state]."""
    desk = of(request)
    now = desk.now
    moments = await desk.day.moments(now)
    content = await asyncio.to_thread(_changes, moments, now)
    return Response(content, media_type="application/json")


def changes(moments: Sequence[Moment], now: int) -> tuple[list[str], list[tuple[int, int, int]]]:
    """The sessions, and each change of state as the place of its session, the second of the day and the state. Pure.

    A session that was there before is shown from the beginning of what is known, as its first moment lets one tell.
    """
    begin, known = now - SPAN, _known(moments, now)
    places: dict[str, int] = {}
    last: dict[str, int] = {}
    found: list[tuple[int, int, int]] = []

    def change(session_id: str, state: str, at: int) -> None:
        code = CODES[state]
        if last.get(session_id) != code:
            last[session_id] = code
            place = places.setdefault(session_id, len(places))
            found.append((place, max(at - begin, 0) // 1_000_000, code))

    for one in moments:
        if one.session_id not in places and one.kind != "session_opened":
            change(one.session_id, BEFORE.get(one.kind, "thinking"), known)
        change(one.session_id, _state(one), one.at)
    return list(places), found


def _known(moments: Sequence[Moment], now: int) -> int:
    """Since when everything is known that happened."""
    return now - SPAN if len(moments) < board.MOMENTS else moments[0].at


def _state(moment: Moment) -> str:
    """What a session is doing after a moment."""
    reaped = moment.kind == "ended" and REAPED in (moment.body or "")
    return "reaped" if reaped else STATES[moment.kind]


def _changes(moments: Sequence[Moment], now: int) -> bytes:
    sessions, found = changes(moments, now)
    begin, known = now - SPAN, _known(moments, now)
    since = max(known - begin, 0) // 1_000_000
    content = {"begin": begin // 1_000_000, "known": since, "sessions": sessions, "changes": found}
    return msgspec.json.encode(content)
