"""The page that says whether all is well: leaked sessions, heartbeats, queues, the store's size, slow turns, and a day of charts."""

import asyncio
from contextlib import suppress
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard import day, pages
from holdfast.dashboard.desk import Desk, of
from holdfast.dashboard.listing import take
from holdfast.engine.census import Census
from holdfast.engine.janitor import first_look
from holdfast.model.errors import NotFound
from holdfast.settings import without_password
from holdfast.store import board, inbox, outbox, sessions, workers
from holdfast.store.board import Depths
from holdfast.store.database import Transaction
from holdfast.store.workers import Worker

SLOWEST = 8


class Look(msgspec.Struct, frozen=True):
    census: Census
    depths: Depths
    workers: list[Worker]
    arriving: int
    leaving: int
    dead: int


def _look(tx: Transaction) -> Look:
    arriving, leaving = inbox.depths(tx), outbox.depths(tx)
    return Look(
        census=take(tx),
        depths=board.depths(tx),
        workers=workers.alive(tx),
        arriving=sum(count for _, state, count in arriving if state != "dead"),
        leaving=sum(count for _, state, count in leaving if state in ("waiting", "sending")),
        dead=sum(count for _, state, count in arriving if state == "dead")
        + sum(count for _, state, count in leaving if state in ("failed", "unknown")),
    )


def _titles(tx: Transaction, ids: set[str]) -> dict[str, str]:
    """What people call these sessions. One that was pruned meanwhile has no name any more."""
    found = {}
    for session_id in ids:
        with suppress(NotFound):
            summary = sessions.get(tx, session_id).summary
            found[session_id] = summary.title or summary.preview
    return found


class StoreSize(msgspec.Struct, frozen=True):
    where: str
    bytes: int | None = None
    wal: int | None = None
    index: int | None = None


def _size(desk: Desk) -> StoreSize:
    """Sizes of the files, by a look at the folder alone: opening the store's file a second time could harm its locks."""
    path = desk.settings.store_path
    if path is None:
        return StoreSize(without_password(desk.settings.store))
    index = path.with_name("search.db" if path.name == "holdfast.db" else f"{path.stem}-search.db")
    return StoreSize(str(path), _bytes(path), _bytes(path.with_name(path.name + "-wal")), _bytes(index))


def _bytes(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


async def show(request: Request) -> Response:
    desk = of(request)
    look = await desk.database.read(_look)
    size = await asyncio.to_thread(_size, desk)
    if size.bytes is None:
        size = msgspec.structs.replace(size, bytes=await desk.database.read(board.size))
    played = day.turns(await desk.day.moments(desk.now))
    slowest = sorted(played, key=lambda turn: -turn.seconds)[:SLOWEST]
    return pages.page(
        request,
        "health.html",
        look=look,
        store=size,
        judged=[(one, first_look(one, desk.ours)) for one in look.workers],
        stale=desk.settings.liveness.stale_seconds,
        slowest=slowest,
        titles=await desk.database.read(_titles, {turn.session_id for turn in slowest}),
        played=len(played),
        failed=sum(turn.outcome != "done" for turn in played),
        most=board.MOMENTS if desk.day.is_cut else None,
        now=desk.now,
    )


async def charts(request: Request) -> Response:
    """The last day as columns, for drawing."""
    desk = of(request)
    drawn = day.charts(day.turns(await desk.day.moments(desk.now)), desk.now)
    return Response(msgspec.json.encode(drawn), media_type="application/json")
