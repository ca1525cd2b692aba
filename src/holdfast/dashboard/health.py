"""The health page: orphaned sessions, heartbeats, queues, store size, slow turns and charts of the last day."""

import asyncio
from contextlib import suppress
from pathlib import Path

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.clock import get_watch
from holdfast.dashboard import templating, timeline
from holdfast.dashboard.context import DashboardContext, get_context
from holdfast.dashboard.sessions import read_stats
from holdfast.engine.liveness.janitor import assess_worker
from holdfast.engine.stats import SessionStats
from holdfast.model.errors import NotFound
from holdfast.settings import mask_password
from holdfast.store.database import Transaction
from holdfast.store.repos import dashboard_queries, inbox, outbox, sessions, workers
from holdfast.store.repos.dashboard_queries import QueueDepths
from holdfast.store.repos.workers import Worker

MAX_SLOWEST = 8


class HealthSnapshot(msgspec.Struct, frozen=True):
    stats: SessionStats
    depths: QueueDepths
    workers: list[Worker]
    arriving: int
    leaving: int
    dead: int


def _read_snapshot(tx: Transaction) -> HealthSnapshot:
    arriving, leaving = inbox.count_by_state(tx), outbox.count_by_state(tx)
    return HealthSnapshot(
        stats=read_stats(tx),
        depths=dashboard_queries.count_waiting(tx),
        workers=workers.list_alive(tx),
        arriving=sum(count for _, state, count in arriving if state != "dead"),
        leaving=sum(count for _, state, count in leaving if state in ("waiting", "sending")),
        dead=sum(count for _, state, count in arriving if state == "dead")
        + sum(count for _, state, count in leaving if state in ("failed", "unknown")),
    )


def _read_titles(tx: Transaction, ids: set[str]) -> dict[str, str]:
    """Titles of sessions. A session that was pruned meanwhile has none."""
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


def _measure_store(context: DashboardContext) -> StoreSize:
    """Sizes of the store's files, from stat alone: opening the store's file a second time could drop its locks."""
    path = context.settings.store_path
    if path is None:
        return StoreSize(mask_password(context.settings.store))
    index = path.with_name("search.db" if path.name == "holdfast.db" else f"{path.stem}-search.db")
    return StoreSize(str(path), _file_size(path), _file_size(path.with_name(path.name + "-wal")), _file_size(index))


def _file_size(path: Path) -> int:
    try:
        return path.stat().st_size
    except FileNotFoundError:
        return 0


async def show_health(request: Request) -> Response:
    context = get_context(request)
    snapshot = await context.database.read(_read_snapshot)
    size = await asyncio.to_thread(_measure_store, context)
    if size.bytes is None:
        size = msgspec.structs.replace(size, bytes=await context.database.read(dashboard_queries.get_database_size))
    turns = timeline.completed_turns(await context.timeline.events(context.now))
    watch = get_watch(context.engine.services.clock)
    slowest = sorted(turns, key=lambda turn: -turn.seconds)[:MAX_SLOWEST]
    return templating.page_response(
        request,
        "health.html",
        snapshot=snapshot,
        store=size,
        workers=[(one, assess_worker(one, context.identity)) for one in snapshot.workers],
        stale=context.settings.liveness.stale_seconds,
        slowest=slowest,
        titles=await context.database.read(_read_titles, {turn.session_id for turn in slowest}),
        turn_count=len(turns),
        failed=sum(turn.outcome != "done" for turn in turns),
        limit=dashboard_queries.MAX_TIMELINE_EVENTS if context.timeline.is_truncated else None,
        now=context.now,
        clock=watch if watch is not None and watch.last is not None else None,
    )


async def send_charts(request: Request) -> Response:
    """Send the chart data of the last day."""
    context = get_context(request)
    charts = timeline.build_charts(timeline.completed_turns(await context.timeline.events(context.now)), context.now)
    return Response(msgspec.json.encode(charts), media_type="application/json")
