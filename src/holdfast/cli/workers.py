"""`holdfast workers`, `janitor` and `why`: list workers, clean up after dead ones, explain sessions."""

import click

from holdfast import config
from holdfast.cli import context, render, signals
from holdfast.cli.parsing.session_ref import REF
from holdfast.clock import SystemClock, format_local_time
from holdfast.engine import explain
from holdfast.engine.context.budget import ContextFill
from holdfast.engine.explain import Explanation
from holdfast.engine.liveness.janitor import Janitor, SweepReport, assess_worker
from holdfast.interop.documents.explanation import WhyResponse
from holdfast.interop.documents.workers import SweepResponse, WorkerItem, WorkerListResponse
from holdfast.model.mode import MODE_HELP
from holdfast.model.sanitize import visible
from holdfast.model.text import counted
from holdfast.process_lookup import current_identity
from holdfast.slash.format import decision_line
from holdfast.store.repos import workers
from holdfast.supervisor import TaskStatus, decode_statuses
from holdfast.wiring.engine import explain_settings, janitor_settings, open_engine
from holdfast.wiring.store import App
from holdfast.wiring.tools import has_bubblewrap

RECENT = 20


@click.command("workers")
@click.option("--all", "everything", is_flag=True, help="Include ended workers.")
@context.json_option
def workers_(everything: bool, as_json: bool) -> None:
    """List worker processes and their background tasks."""
    found = context.read(workers.list_recent, RECENT * 50) if everything else context.read(workers.list_alive)
    ours = current_identity()
    shown = [(worker, assess_worker(worker, ours)) for worker in found]
    if as_json:
        render.print_json(WorkerListResponse([WorkerItem.from_worker(worker, verdict) for worker, verdict in shown]))
        return
    rows = [
        [
            worker.id,
            verdict.state,
            worker.kind,
            f"{worker.machine} {worker.pid}",
            format_local_time(worker.beat_at),
            verdict.evidence,
        ]
        for worker, verdict in shown
    ]
    render.print_table(["worker", "state", "kind", "process", "last heartbeat", "evidence"], rows, stretch=5)
    tasks = [
        [worker.id, task.name, task.state, _cycle(task), str(task.failures), visible(task.error)]
        for worker, _ in shown
        for task in decode_statuses(worker.tasks)
        if worker.ended_at is None
    ]
    if tasks:
        render.print_text("")
        render.print_table(["worker", "task", "state", "last run", "failures", "last error"], tasks, stretch=5)


def _cycle(task: TaskStatus) -> str:
    return "never" if task.cycle_at is None else format_local_time(task.cycle_at)


@click.command()
@click.option("--once", is_flag=True, help="Sweep once, finish the recovered turns, and print a report.")
@context.json_option
def janitor(once: bool, as_json: bool) -> int:
    """End or recover the sessions of dead processes.

    Runs until stopped, unless --once is given.
    """
    context.hide_secrets()
    return context.with_app(lambda app: _janitor(app, once=once, as_json=as_json))


async def _janitor(app: App, *, once: bool, as_json: bool) -> int:
    async with open_engine(
        app.database, app.settings, config.environment(), supervisor=app.supervisor, kind="janitor"
    ) as engine:
        sweeper = Janitor(
            engine.services, current_identity(), janitor_settings(app.settings), engine.take_up, engine.sweep_steps
        )
        if not once:
            context.note("sweeping; press Ctrl-C to stop")
            return await signals.run_until_signalled(_run_sweeper(app, sweeper), engine.drain, engine.death)
        found = await sweeper.sweep()
        await engine.settled()
        _report(found, as_json=as_json)
        return 0


async def _run_sweeper(app: App, sweeper: Janitor) -> None:
    await app.supervisor.start("janitor", sweeper.as_task())


def _report(found: SweepReport, *, as_json: bool) -> None:
    if as_json:
        render.print_json(SweepResponse.from_report(found))
        return
    for action in found.actions:
        render.print_text(visible(f"{action.what}: {action.session_id or action.worker_id} ({action.evidence})"))
    render.print_text(f"{counted(len(found.workers), 'worker')} checked, {counted(len(found.actions), 'action')} taken")


@click.command()
@click.argument("ref", type=REF)
@context.json_option
def why(ref: str, as_json: bool) -> None:
    """Explain the state of a session.

    Shows its owner, its current activity, every decision with its evidence, and what happens next.
    """
    environment = config.environment()
    known = explain_settings(
        context.settings(),
        SystemClock(),
        environment.get("TZ", ""),
        has_bubblewrap=has_bubblewrap(context.settings(), environment),
    )
    found = context.read_one(ref, lambda tx, session: explain.why(tx, session, known, current_identity()))
    if as_json:
        render.print_json(WhyResponse.from_explanation(found))
        return
    render.print_text(visible(found.headline))
    render.print_text(visible(f"owner: {_owner(found)}"))
    for decision in found.decisions:
        render.print_text(visible(decision_line(decision)))
    if found.fill is not None:
        render.print_text(visible(_context(found.fill)))
    for process, seen in found.processes:
        blocks = ", blocks reset" if seen.blocks else ""
        render.print_text(visible(f"process {process.id} ({process.command}): {seen.kind}{blocks} ({seen.evidence})"))
    mode = found.session.summary.mode
    render.print_text(f"permission mode: {mode} ({MODE_HELP[mode]})")
    render.print_text(visible(f"terminal: {found.terminal}"))
    for line in (*found.delegation, *found.goal):
        render.print_text(visible(line))
    if found.reset:
        render.print_text(visible(f"reset: {found.reset}"))
    if found.attempts:
        render.print_text(f"recovery attempts of the open turn: {found.attempts}")
    render.print_text(visible(f"next: {found.next}"))


def _context(fill: ContextFill) -> str:
    last = fill.last.event if fill.last is not None else None
    summarized = f", summary of events up to {last.upto_seq} ({last.how})" if last is not None else ""
    failed = f"; the last compaction failed: {fill.failed.reason}" if fill.failed is not None else ""
    return (
        f"context: epoch {fill.epoch}, about {fill.tokens:,} of {fill.window:,} tokens ({fill.share:.0%})"
        f"{summarized}{failed}; {fill.next}"
    )


def _owner(found: Explanation) -> str:
    if found.owner is None or found.verdict is None:
        return "none"
    return f"{found.owner.id} ({found.owner.whereabouts}), {found.verdict.state}: {found.verdict.evidence}"
