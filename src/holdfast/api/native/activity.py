"""Workers and what they are doing now: worker list, janitor sweep, activity, idleness."""

import msgspec

from holdfast.api.native import request_models
from holdfast.api.native.endpoint import EndpointCall
from holdfast.api.native.response_models import ActiveSessionItem, ActivityResponse, IdleResponse, SessionCounts
from holdfast.engine.explain import doing
from holdfast.engine.liveness.janitor import WorkerVerdict, assess_worker
from holdfast.engine.stats import compute_stats
from holdfast.interop.documents.workers import SweepResponse, WorkerItem, WorkerListResponse
from holdfast.interop.serialization import format_time
from holdfast.model.session import Session
from holdfast.model.times import iso
from holdfast.model.turn import Turn, turn_of
from holdfast.process_lookup import current_identity
from holdfast.store.database import Transaction
from holdfast.store.repos import approvals, log, schedules, session_list, workers
from holdfast.store.repos.workers import Worker

ENDED = 1000
"""Ended workers listed at most."""
TAIL = 50
"""Events read to find out what a turn is doing."""


async def list_workers(call: EndpointCall) -> WorkerListResponse:
    """List the workers of the store and whether they are alive."""
    query: request_models.ListWorkersRequest = call.query
    read = call.context.database.read
    found = await read(workers.list_recent, ENDED) if query.all else await read(workers.list_alive)
    return WorkerListResponse([WorkerItem.from_worker(*one) for one in _assessed(found)])


def _assessed(found: list[Worker]) -> list[tuple[Worker, WorkerVerdict]]:
    ours = current_identity()
    return [(worker, assess_worker(worker, ours)) for worker in found]


async def sweep(call: EndpointCall) -> SweepResponse:
    """Run a janitor sweep now: end or recover what dead workers left."""
    return SweepResponse.from_report(await call.context.sweep())


async def get_activity(call: EndpointCall) -> ActivityResponse:
    """Show current activity: workers, running and recent sessions, and session counts."""
    query: request_models.ActivityRequest = call.query
    return await call.context.database.read(_activity, query.limit, at=call.context.engine.services.clock.now())


def _activity(tx: Transaction, limit: int, *, at: int) -> ActivityResponse:
    assessed = _assessed(workers.list_alive(tx))
    busy = session_list.list_in_use(tx, limit)
    recent = session_list.list_page(tx, session_list.SessionFilters(), limit=limit).sessions
    shown = list({one.id: one for one in (*busy, *recent)}.values())[:limit]
    stats = compute_stats(
        session_list.count_by_kind(tx), {worker.id for worker, verdict in assessed if verdict.state != "dead"}
    )
    return ActivityResponse(
        at=iso(at),
        workers=[WorkerItem.from_worker(*one) for one in assessed],
        sessions=[_active(tx, one) for one in shown],
        counts=SessionCounts(**msgspec.structs.asdict(stats), open=stats.open),
    )


def _active(tx: Transaction, session: Session) -> ActiveSessionItem:
    is_running = session.state in ("running", "asking")
    turn = turn_of(log.read_tail(tx, session, TAIL)) if is_running else Turn()
    questions = approvals.list_unanswered_in_tree(tx, session.id) if is_running else []
    return ActiveSessionItem(
        id=session.id,
        title=session.summary.title,
        source=session.summary.source,
        state=session.state,
        worker_id=session.worker_id,
        last_heartbeat_at=format_time(session.last_heartbeat_at),
        last_event_at=iso(session.summary.updated_at),
        doing=doing(session, turn, questions),
    )


async def get_idle(call: EndpointCall) -> IdleResponse:
    """Report whether this worker can be stopped, and when a schedule next needs it."""
    engine, due = call.context.engine, await call.context.database.read(schedules.get_next_due)
    why = [f"{engine.running_sessions} turns are running"] if engine.running_sessions else []
    why += [f"platform {name} is connected" for name in call.context.settings.gateway.platforms]
    return IdleResponse(idle=not why, why=why, wake_at=format_time(due))
