"""The whole store: words in it, who works on it, what runs in the background, and what goes on."""

from typing import Any

import msgspec

from holdfast.api import asked, doors
from holdfast.api.doors import Call, session_of
from holdfast.engine.census import take_census
from holdfast.engine.janitor import Verdict, first_look
from holdfast.engine.why import doing
from holdfast.identity import identity
from holdfast.interop import reports, shapes
from holdfast.model.process import Process
from holdfast.model.session import Session
from holdfast.model.turn import Turn, turn_of
from holdfast.store import approvals, log, schedules, sessions, workers
from holdfast.store.database import Transaction
from holdfast.store.search import Scope
from holdfast.store.workers import Worker

Json = dict[str, Any]
ENDED = 1000
"""How many workers that have ended are listed."""
TAIL = 50
"""Events that are looked at to see what a turn is doing."""


async def search(call: Call) -> Json:
    """Words in everything that was ever said, compacted text included."""
    query: asked.SearchAsked = call.query
    database, index = call.house.database, await call.house.search()
    session = None if query.session is None else await database.read(doors.find, query.session)
    await index.catch_up()
    scope = Scope(session_id=None if session is None else session.id, trashed=session is not None)
    hits = await index.search(query.q, limit=query.limit, scope=scope, before_position=query.before)
    titles = await database.read(_titles, {hit.session_id for hit in hits})
    more = hits[-1].position if len(hits) == query.limit else None
    return {"query": query.q, "hits": [shapes.hit(hit, titles[hit.session_id]) for hit in hits], "next": more}


def _titles(tx: Transaction, ids: set[str]) -> dict[str, str | None]:
    return {session_id: sessions.get(tx, session_id).summary.title for session_id in ids}


async def list_workers(call: Call) -> Json:
    """Processes that work on the store, and whether they are alive."""
    query: asked.WorkersAsked = call.query
    read = call.house.database.read
    found = await read(workers.recent, ENDED) if query.all else await read(workers.alive)
    return {"workers": [reports.worker(*one) for one in _judged(found)]}


def _judged(found: list[Worker]) -> list[tuple[Worker, Verdict]]:
    ours = identity()
    return [(worker, first_look(worker, ours)) for worker in found]


async def list_processes(call: Call) -> Json:
    """Background processes, as they are now."""
    query: asked.ProcessesAsked = call.query
    found = await call.house.processes.list(ended=query.ended)
    return {"processes": [_process(call, one) for one in found]}


async def processes_of(call: Call) -> Json:
    """Background processes of the session."""
    query: asked.ProcessesAsked = call.query
    session = await session_of(call)
    found = await call.house.processes.list(session_id=session.id, ended=query.ended)
    return {"processes": [_process(call, one) for one in found]}


async def get_process(call: Call) -> Json:
    """One background process."""
    return _process(call, await call.house.processes.get(call.place("id")))


async def output(call: Call) -> Json:
    """What a process has put out: its end, or a piece from a byte on."""
    query: asked.OutputAsked = call.query
    process = await call.house.processes.get(call.place("id"))
    page = await call.house.processes.read_output(process, query.start, query.limit)
    return {
        "process": _process(call, process),
        "output": page.text,
        "start": page.start,
        "end": page.end,
        "bytes": page.total,
        "bytes_dropped": page.gone,
    }


async def kill(call: Call) -> Json:
    """End a process with everything it has started: a request first, the kill after some seconds."""
    process = await call.house.processes.get(call.place("id"))
    return _process(call, await call.house.processes.stop(process, "ended through the API"))


def _process(call: Call, process: Process) -> Json:
    return shapes.process(process, call.house.processes.judge(process))


async def sweep(call: Call) -> Json:
    """End or take up what dead workers have left, now."""
    return reports.sweep(await call.house.sweep())


async def activity(call: Call) -> Json:
    """What goes on: who works, the sessions in hand and those used last, and all of them counted."""
    query: asked.ActivityAsked = call.query
    found = await call.house.database.read(_activity, query.limit)
    return {"at": shapes.time(call.house.engine.ground.clock.now()), **found}


def _activity(tx: Transaction, limit: int) -> Json:
    judged = _judged(workers.alive(tx))
    busy = sessions.in_hand(tx, limit)
    recent = sessions.list_page(tx, sessions.Filters(), limit=limit).sessions
    shown = list({one.id: one for one in (*busy, *recent)}.values())[:limit]
    census = take_census(sessions.stats(tx), {worker.id for worker, verdict in judged if verdict.state != "dead"})
    return {
        "workers": [reports.worker(*one) for one in judged],
        "sessions": [_active(tx, one) for one in shown],
        "counts": {**msgspec.structs.asdict(census), "open": census.open},
    }


def _active(tx: Transaction, session: Session) -> Json:
    is_running = session.state == "running"
    turn = turn_of(log.tail(tx, session, TAIL)) if is_running else Turn()
    questions = approvals.unanswered(tx, session.id) if is_running else []
    return {
        "id": session.id,
        "title": session.summary.title,
        "source": session.summary.source,
        "state": session.state,
        "worker_id": session.worker_id,
        "last_heartbeat_at": shapes.time(session.last_heartbeat_at),
        "last_event_at": shapes.time(session.summary.updated_at),
        "doing": doing(session, turn, questions),
    }


async def idle(call: Call) -> Json:
    """Whether this worker could be stopped without anybody missing it, and when it would be needed again."""
    engine, due = call.house.engine, await call.house.database.read(schedules.next_due)
    why = [f"{engine.in_hand} turns are played"] if engine.in_hand else []
    why += [f"{name} is served" for name in call.house.settings.gateway.platforms]
    return {"idle": not why, "why": why, "wake_at": None if due is None else shapes.time(due)}
