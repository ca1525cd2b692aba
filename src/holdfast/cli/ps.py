"""`holdfast ps`: list background processes, show their output, stop them."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from holdfast.cli import context, render
from holdfast.cli.parsing.groups import SuggestingGroup
from holdfast.interop.documents.processes import ProcessItem, ProcessListResponse
from holdfast.model.process import Process, ProcessVerdict, duration
from holdfast.model.sanitize import one_line, visible
from holdfast.tasks import run_all

if TYPE_CHECKING:
    from holdfast.processes.registry import ProcessRegistry
    from holdfast.wiring.store import App

T = TypeVar("T")
LINES = 100
FOLLOW_SECONDS = 0.3
PAGE_BYTES = 1 << 20


@click.group(cls=SuggestingGroup, invoke_without_command=True)
@click.option("--all", "ended", is_flag=True, help="Include ended processes.")
@context.json_option
@click.pass_context
def ps(ctx: click.Context, *, ended: bool, as_json: bool) -> None:
    """List background processes.

    Shows the state of each, the evidence for it, and whether it blocks a reset.
    """
    if ctx.invoked_subcommand is not None:
        return
    shown = _with_registry(lambda registry: _list(registry, ended=ended))
    if as_json:
        render.print_json(ProcessListResponse([ProcessItem.from_process(process, seen) for process, seen, _ in shown]))
        return
    rows = [
        [
            process.id,
            seen.kind + (", blocks reset" if seen.blocks else ""),
            age,
            process.session_id,
            process.command,
            seen.evidence,
        ]
        for process, seen, age in shown
    ]
    render.print_table(["process", "state", "started", "session", "command", "evidence"], rows, stretch=4)


async def _list(registry: "ProcessRegistry", *, ended: bool) -> list[tuple[Process, ProcessVerdict, str]]:
    return [
        (process, registry.classify(process), f"{duration((registry.now() - process.started_at) / 1e6)} ago")
        for process in await registry.list(ended=ended)
    ]


@ps.command()
@click.argument("process_id", metavar="ID")
@click.option(
    "--lines", "-n", type=click.IntRange(min=1), default=LINES, show_default=True, help="Show this many lines."
)
@click.option("--follow", is_flag=True, help="Follow the output until the process ends.")
@context.json_option
def log(*, process_id: str, lines: int, follow: bool, as_json: bool) -> None:
    """Show the last output of a process."""
    if as_json and follow:
        raise click.UsageError("--json and --follow cannot be used together")
    _with_registry(lambda registry: _log(registry, process_id, lines, follow=follow, as_json=as_json))


async def _log(registry: "ProcessRegistry", process_id: str, lines: int, *, follow: bool, as_json: bool) -> None:
    process = await registry.get(process_id)
    page = await registry.read_output(process, None, PAGE_BYTES)
    text = "".join(page.text.splitlines(keepends=True)[-lines:])
    if as_json:
        found = ProcessItem.from_process(process, registry.classify(process))
        render.print_json({"process": found, "output": text, "bytes": page.total, "bytes_dropped": page.gone})
        return
    if page.gone:
        context.note(f"the first {page.gone:,} of {page.total:,} bytes were dropped")
    render.print_text(visible(text), end="")
    while follow and process.ended_at is None:
        render.flush()
        await asyncio.sleep(FOLLOW_SECONDS)
        process = await registry.wait(process, 0)
        page = await registry.read_output(process, page.end, PAGE_BYTES)
        render.print_text(visible(page.text), end="")
    if process.ended_at is not None:
        context.note(f"process {process.id} ended: {process.end_reason}")


@ps.command()
@click.argument("process_ids", metavar="ID...", nargs=-1, required=True)
@context.json_option
def kill(*, process_ids: tuple[str, ...], as_json: bool) -> None:
    """Stop processes and their children: SIGTERM, then SIGKILL after a few seconds."""
    ended = _with_registry(lambda registry: _kill(registry, process_ids))
    if as_json:
        render.print_json(ProcessListResponse([ProcessItem.from_process(process, seen) for process, seen in ended]))
        return
    for process, seen in ended:
        render.print_text(one_line(f"{process.id}: {seen.evidence}"))


async def _kill(registry: "ProcessRegistry", process_ids: tuple[str, ...]) -> list[tuple[Process, ProcessVerdict]]:
    """Stop all of them, or none if one is unknown."""
    found = [await registry.get(process_id) for process_id in process_ids]
    ended = await run_all(*(registry.stop(process, "stopped by the user") for process in found))
    return [(process, registry.classify(process)) for process in ended]


def _with_registry(work: "Callable[[ProcessRegistry], Awaitable[T]]") -> T:
    from holdfast.process_lookup import current_identity
    from holdfast.processes.registry import open_registry

    def go(app: "App") -> Awaitable[T]:
        # No process is started from here, so the environment stays empty.
        return work(open_registry(app.database, app.settings, {}, clock=app.clock, ours=current_identity()))

    return context.with_app(go)
