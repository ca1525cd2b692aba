"""`holdfast ps`: background processes, their output and their end."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import TYPE_CHECKING, TypeVar

import click

from holdfast.cli import face, render
from holdfast.interop import shapes
from holdfast.interop.visible import one_line, visible
from holdfast.model.process import Process, Verdict, duration

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.processes.registry import Registry

T = TypeVar("T")
LINES = 100
FOLLOW_SECONDS = 0.3
PAGE_BYTES = 1 << 20


@click.group(invoke_without_command=True)
@click.option("--all", "ended", is_flag=True, help="Those that have ended, too.")
@face.json_option
@click.pass_context
def ps(ctx: click.Context, *, ended: bool, as_json: bool) -> None:
    """Background processes: what they do, how that is known, and which hold back a reset."""
    if ctx.invoked_subcommand is not None:
        return
    shown = _with_registry(lambda registry: _list(registry, ended=ended))
    if as_json:
        render.document({"processes": [shapes.process(process, seen) for process, seen, _ in shown]})
        return
    rows = [
        [
            process.id,
            seen.kind + (", holds back a reset" if seen.blocks else ""),
            age,
            process.session_id,
            process.command,
            seen.evidence,
        ]
        for process, seen, age in shown
    ]
    render.table(["process", "state", "started", "session", "command", "evidence"], rows, stretch=4)


async def _list(registry: "Registry", *, ended: bool) -> list[tuple[Process, Verdict, str]]:
    return [
        (process, registry.judge(process), f"{duration((registry.now() - process.started_at) / 1e6)} ago")
        for process in await registry.list(ended=ended)
    ]


@ps.command()
@click.argument("process_id", metavar="ID")
@click.option("--lines", "-n", type=click.IntRange(min=1), default=LINES, show_default=True, help="How many lines.")
@click.option("--follow", is_flag=True, help="Go on until it has ended.")
@face.json_option
def log(*, process_id: str, lines: int, follow: bool, as_json: bool) -> None:
    """The end of what a process has put out."""
    if as_json and follow:
        raise click.UsageError("--json prints one document; it does not go with --follow")
    _with_registry(lambda registry: _log(registry, process_id, lines, follow=follow, as_json=as_json))


async def _log(registry: "Registry", process_id: str, lines: int, *, follow: bool, as_json: bool) -> None:
    process = await registry.get(process_id)
    page = await registry.read_output(process, None, PAGE_BYTES)
    text = "".join(page.text.splitlines(keepends=True)[-lines:])
    if as_json:
        found = shapes.process(process, registry.judge(process))
        render.document({"process": found, "output": text, "bytes": page.total, "bytes_dropped": page.gone})
        return
    if page.gone:
        face.note(f"of {page.total:,} bytes the first {page.gone:,} were dropped")
    render.out(visible(text), end="")
    while follow and process.ended_at is None:
        render.flush()
        await asyncio.sleep(FOLLOW_SECONDS)
        process = await registry.wait(process, 0)
        page = await registry.read_output(process, page.end, PAGE_BYTES)
        render.out(visible(page.text), end="")
    if process.ended_at is not None:
        face.note(f"process {process.id} has ended: {process.end_reason}")


@ps.command()
@click.argument("process_ids", metavar="ID...", nargs=-1, required=True)
@face.json_option
def kill(*, process_ids: tuple[str, ...], as_json: bool) -> None:
    """End processes with everything they have started: a request first, the kill after some seconds."""
    ended = _with_registry(lambda registry: _kill(registry, process_ids))
    if as_json:
        render.document({"processes": [shapes.process(process, seen) for process, seen in ended]})
        return
    for process, seen in ended:
        render.out(one_line(f"{process.id}: {seen.evidence}"))


async def _kill(registry: "Registry", process_ids: tuple[str, ...]) -> list[tuple[Process, Verdict]]:
    """All of them or, if one is not known, none."""
    found = [await registry.get(process_id) for process_id in process_ids]
    ended = await asyncio.gather(*(registry.stop(process, "ended by a person") for process in found))
    return [(process, registry.judge(process)) for process in ended]


def _with_registry(work: "Callable[[Registry], Awaitable[T]]") -> T:
    from holdfast.identity import identity
    from holdfast.processes.registry import open_registry

    def go(app: "App") -> Awaitable[T]:
        # Nothing is started from here, so nothing needs an environment.
        return work(open_registry(app.database, app.settings, {}, clock=app.clock, ours=identity()))

    return face.with_app(go)
