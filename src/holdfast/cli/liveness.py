"""`holdfast workers`, `janitor` and `why`: who is alive, who sees to the dead, and the reasons."""

import click
import msgspec

from holdfast import config
from holdfast.app import App
from holdfast.assemble import open_engine, pace
from holdfast.cli import face, render, signals
from holdfast.engine.janitor import Janitor, Sweep, Verdict, first_look
from holdfast.engine.liveness import identity
from holdfast.engine.why import Why, explain
from holdfast.interop import shapes
from holdfast.interop.visible import visible
from holdfast.model.session import Session
from holdfast.store import approvals, log, workers
from holdfast.store.database import Transaction
from holdfast.store.workers import Worker

RECENT = 20


@click.command("workers")
@click.option("--all", "everything", is_flag=True, help="Those that have ended, too.")
@face.json_option
def workers_(everything: bool, as_json: bool) -> None:
    """Processes that work on the store, and whether they are alive."""
    found = face.read(workers.recent, RECENT * 50) if everything else face.read(workers.alive)
    ours = identity()
    shown = [(worker, first_look(worker, ours)) for worker in found]
    if as_json:
        render.document({"workers": [_worker(worker, verdict) for worker, verdict in shown]})
        return
    rows = [
        [
            worker.id,
            verdict.state,
            worker.kind,
            f"{worker.host.split('#')[0]} {worker.pid}",
            render.day(worker.beat_at),
            verdict.evidence,
        ]
        for worker, verdict in shown
    ]
    render.table(["worker", "state", "kind", "process", "last beat", "evidence"], rows, stretch=5)


def _worker(worker: Worker, verdict: Verdict | None) -> dict[str, object]:
    times = ("started_at", "beat_at", "stalled_since", "ended_at", "cleared_at")
    shape = msgspec.structs.asdict(worker) | {name: shapes.time(getattr(worker, name)) for name in times}
    return shape | ({} if verdict is None else {"state": verdict.state, "evidence": verdict.evidence})


@click.command()
@click.option("--once", is_flag=True, help="Sweep once, finish what was taken up, and say what was done.")
@face.json_option
def janitor(once: bool, as_json: bool) -> int:
    """End or take up what dead processes have left; without --once, for as long as it runs."""
    return face.with_app(lambda app: _janitor(app, once=once, as_json=as_json))


async def _janitor(app: App, *, once: bool, as_json: bool) -> int:
    async with open_engine(app.database, app.settings, config.environment(), kind="janitor") as engine:
        sweeper = Janitor(engine.ground, identity(), pace(app.settings), engine.take_up)
        if not once:
            face.note("sweeping; Ctrl-C ends it")
            return await signals.unless_signalled(sweeper.work(), engine.drain, engine.death)
        found = await sweeper.sweep()
        await engine.settled()
        _report(found, as_json=as_json)
        return 0


def _report(found: Sweep, *, as_json: bool) -> None:
    if as_json:
        judged = [_worker(worker, verdict) for worker, verdict in found.workers]
        render.document({"workers": judged, "done": [msgspec.structs.asdict(deed) for deed in found.deeds]})
        return
    for deed in found.deeds:
        render.out(visible(f"{deed.what}: {deed.session_id or deed.worker_id} ({deed.evidence})"))
    render.out(f"{len(found.workers)} workers looked at, {len(found.deeds)} things done")


@click.command()
@click.argument("ref")
@face.json_option
def why(ref: str, as_json: bool) -> None:
    """Why a session is as it is: its owner, what it does, every decision with its evidence, and what comes next."""
    idle_minutes = face.settings().api.idle_minutes
    found = face.read_one(ref, lambda tx, session: _why(tx, session, idle_minutes))
    if as_json:
        render.document(_document(found))
        return
    session = found.session
    render.out(visible(f"{session.id} is {session.state}: {found.doing}"))
    render.out(visible(f"owner: {_owner(found)}"))
    for decision in found.decisions:
        evidence = f" ({decision.evidence})" if decision.evidence else ""
        render.out(visible(f"{render.day(decision.at)}  [{decision.seq}] {decision.what}{evidence}"))
    if found.attempts:
        render.out(f"its turn was taken up {found.attempts} times")
    render.out(visible(f"next: {found.next}"))


def _why(tx: Transaction, session: Session, idle_minutes: int) -> Why:
    owner = workers.get(tx, session.worker_id) if session.worker_id else None
    verdict = None if owner is None else first_look(owner, identity())
    questions = approvals.unanswered(tx, session.id)
    return explain(session, log.read_whole(tx, session), owner, verdict, questions, idle_minutes=idle_minutes)


def _owner(found: Why) -> str:
    if found.owner is None or found.verdict is None:
        return "nobody"
    worker = found.owner
    return f"{worker.id} ({worker.kind}, pid {worker.pid} on {worker.host.split('#')[0]}), {found.verdict.state}: {found.verdict.evidence}"


def _document(found: Why) -> dict[str, object]:
    return {
        "session": shapes.session(found.session),
        "owner": None if found.owner is None else _worker(found.owner, found.verdict),
        "doing": found.doing,
        "decisions": [
            msgspec.structs.asdict(decision) | {"at": shapes.time(decision.at)} for decision in found.decisions
        ],
        "attempts": found.attempts,
        "questions": [
            msgspec.structs.asdict(question) | {"asked_at": shapes.time(question.asked_at)}
            for question in found.questions
        ],
        "next": found.next,
    }
