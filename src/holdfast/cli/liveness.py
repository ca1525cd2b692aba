"""`holdfast workers`, `janitor` and `why`: who is alive, who sees to the dead, and the reasons."""

import click

from holdfast import config
from holdfast.app import App
from holdfast.assemble import open_engine, pace, policies, window
from holdfast.cli import face, render, signals
from holdfast.clock import SystemClock
from holdfast.engine.fill import Fill, fill_of
from holdfast.engine.janitor import Janitor, Sweep, first_look
from holdfast.engine.processes import running
from holdfast.engine.reset import outlook
from holdfast.engine.why import Why, explain, owner_of
from holdfast.identity import identity
from holdfast.interop import reports
from holdfast.interop.visible import visible
from holdfast.model.counted import counted
from holdfast.model.session import Session
from holdfast.settings import Settings
from holdfast.store import approvals, log, resets, workers
from holdfast.store.database import Transaction

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
        render.document({"workers": [reports.worker(worker, verdict) for worker, verdict in shown]})
        return
    rows = [
        [
            worker.id,
            verdict.state,
            worker.kind,
            f"{worker.machine} {worker.pid}",
            render.day(worker.beat_at),
            verdict.evidence,
        ]
        for worker, verdict in shown
    ]
    render.table(["worker", "state", "kind", "process", "last beat", "evidence"], rows, stretch=5)


@click.command()
@click.option("--once", is_flag=True, help="Sweep once, finish what was taken up, and say what was done.")
@face.json_option
def janitor(once: bool, as_json: bool) -> int:
    """End or take up what dead processes have left; without --once, for as long as it runs."""
    return face.with_app(lambda app: _janitor(app, once=once, as_json=as_json))


async def _janitor(app: App, *, once: bool, as_json: bool) -> int:
    async with open_engine(app.database, app.settings, config.environment(), kind="janitor") as engine:
        sweeper = Janitor(engine.ground, identity(), pace(app.settings), engine.take_up, engine.chores)
        if not once:
            face.note("sweeping; Ctrl-C ends it")
            return await signals.unless_signalled(sweeper.work(), engine.drain, engine.death)
        found = await sweeper.sweep()
        await engine.settled()
        _report(found, as_json=as_json)
        return 0


def _report(found: Sweep, *, as_json: bool) -> None:
    if as_json:
        render.document(reports.sweep(found))
        return
    for deed in found.deeds:
        render.out(visible(f"{deed.what}: {deed.session_id or deed.worker_id} ({deed.evidence})"))
    render.out(f"{counted(len(found.workers), 'worker')} looked at, {counted(len(found.deeds), 'thing')} done")


@click.command()
@click.argument("ref")
@face.json_option
def why(ref: str, as_json: bool) -> None:
    """Why a session is as it is: its owner, what it does, every decision with its evidence, and what comes next."""
    settings = face.settings()
    found = face.read_one(ref, lambda tx, session: _why(tx, session, settings))
    if as_json:
        render.document(reports.why(found))
        return
    session = found.session
    render.out(visible(f"{session.id} is {session.state}: {found.doing}"))
    render.out(visible(f"owner: {_owner(found)}"))
    for decision in found.decisions:
        evidence = f" ({decision.evidence})" if decision.evidence else ""
        render.out(visible(f"{render.day(decision.at)}  [{decision.seq}] {decision.what}{evidence}"))
    if found.fill is not None:
        render.out(visible(_context(found.fill)))
    for process, seen in found.processes:
        blocks = ", which holds back a reset" if seen.blocks else ""
        render.out(visible(f"process {process.id} ({process.command}) is {seen.kind}{blocks}: {seen.evidence}"))
    if found.reset:
        render.out(visible(f"reset: {found.reset}"))
    if found.attempts:
        render.out(f"its turn was taken up {found.attempts} times")
    render.out(visible(f"next: {found.next}"))


def _context(fill: Fill) -> str:
    last = fill.last.event if fill.last is not None else None
    stands_for = f", its summary stands for events up to {last.upto_seq} ({last.how})" if last is not None else ""
    failed = f"; the last attempt failed: {fill.failed.reason}" if fill.failed is not None else ""
    return (
        f"context: epoch {fill.epoch}, about {fill.tokens:,} of {fill.window:,} tokens ({fill.share:.0%})"
        f"{stands_for}{failed}; {fill.next}"
    )


def _why(tx: Transaction, session: Session, settings: Settings) -> Why:
    owner, verdict = owner_of(tx, session, identity())
    questions = approvals.unanswered(tx, session.id)
    entries = log.read_whole(tx, session)
    fill = fill_of(entries, window(settings, session.summary.model), settings.context.compact_at)
    clock = SystemClock()
    known = policies(settings, config.environment().get("TZ", ""))
    return explain(
        session,
        entries,
        owner,
        verdict,
        questions,
        idle_minutes=settings.api.idle_minutes,
        fill=fill,
        processes=running(tx, session.id, identity(), clock.monotonic()),
        reset=outlook(known, session, resets.held(tx, session), clock.now()),
    )


def _owner(found: Why) -> str:
    if found.owner is None or found.verdict is None:
        return "nobody"
    return f"{found.owner.id} ({found.owner.whereabouts}), {found.verdict.state}: {found.verdict.evidence}"
