"""`holdfast batch`: many prompts from a file, and their results in another."""

from pathlib import Path

import click
import msgspec

from holdfast import config
from holdfast.app import App
from holdfast.assemble import open_engine
from holdfast.batch.batch import Batch
from holdfast.batch.prompts import Prompt, read
from holdfast.batch.results import ResultFile
from holdfast.cli import errors, face, render, signals
from holdfast.cli.gauge import Gauge
from holdfast.interop.visible import visible
from holdfast.model.errors import Invalid
from holdfast.providers import choose

NAMED = 10
"""Failed prompts that are named one by one."""


class Given(msgspec.Struct, frozen=True, kw_only=True):
    """What stood on the line."""

    prompts: list[Prompt]
    out: Path
    name: str
    workers: int
    retries: bool
    as_json: bool


@click.command()
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--workers", type=click.IntRange(min=1, max=1000), default=4, help="Prompts played at once. [4]")
@click.option("--out", type=click.Path(path_type=Path), help="Where the results go. [FILE.results.jsonl]")
@click.option("--name", help="The name of the batch; another name is new work. [the name of FILE]")
@click.option("--model", metavar="PROVIDER:NAME", help="The model for prompts that name none.")
@click.option("--retry-failed", "retries", is_flag=True, help="Ask those prompts again that failed before.")
@face.json_option
def batch(
    *, file: Path, workers: int, out: Path | None, name: str | None, model: str | None, retries: bool, as_json: bool
) -> int:
    """Play every prompt of FILE, a JSON line each, in a session of its own.

    The same command again goes on where the last one was left, however it ended.
    """
    settings = face.settings()
    if model is not None:
        choose.parse(model)
    if out is not None and str(out) == "-":
        raise Invalid("--out needs a file: what is finished is read from there when the batch goes on")
    name = file.name if name is None else name
    if not name.strip():
        raise Invalid("--name needs a name; without it the batch is called as the file is")
    prompts = read(file, name, model or settings.model)
    out = out or file.with_name(f"{file.name.removesuffix('.jsonl')}.results.jsonl")
    if out.resolve() == file.resolve():
        raise Invalid("the results would take the place of the prompts; name another file with --out")
    given = Given(prompts=prompts, out=out, name=name, workers=workers, retries=retries, as_json=as_json)
    return face.with_app(lambda app: _batch(app, given))


async def _batch(app: App, given: Given) -> int:
    results = ResultFile(given.out, given.name)
    try:
        async with open_engine(app.database, app.settings, config.environment(), kind="batch") as engine:
            work = Batch(engine, given.name, given.prompts, workdir=config.workdir(), retries=given.retries)
            begun = app.clock.monotonic()
            async with Gauge("batch", app.clock) as gauge:
                status = await signals.unless_signalled(
                    _play(work, results, given.workers, gauge), engine.drain, engine.death
                )
            _report(work, given, status, app.clock.monotonic() - begun)
    finally:
        results.close()
    return status


async def _play(work: Batch, results: ResultFile, workers: int, gauge: Gauge) -> int:
    await work.play(results, workers, gauge.update)
    return errors.FAILED if work.failed else errors.DONE


def _report(work: Batch, given: Given, status: int, seconds: float) -> None:
    total, failed = len(given.prompts), len(work.failed)
    if given.as_json:
        render.document(
            {
                "batch": given.name,
                "out": str(given.out),
                "prompts": total,
                "done": work.finished - failed,
                "failed": failed,
                "finished_before": work.before,
                "interrupted": status == errors.INTERRUPTED,
                "seconds": round(seconds, 3),
                "failures": [
                    {
                        "line": one.line,
                        "id": one.id,
                        "session_id": one.session_id,
                        "error": msgspec.to_builtins(one.error),
                    }
                    for one in work.failed
                ],
            }
        )
        return
    for one in work.failed[:NAMED]:
        if one.error is not None:
            face.note(f"line {one.line} failed: {one.error.message} ({one.error.code}, session {one.session_id})")
    if failed > NAMED:
        face.note(f"{failed - NAMED:,} more failed; {given.out} names them all")
    before = f", {work.before:,} of them before this run" if work.before else ""
    render.out(visible(f"{work.finished - failed:,} of {total:,} prompts done, {failed:,} failed{before}: {given.out}"))
    if status == errors.INTERRUPTED:
        face.note("interrupted; the same command goes on from here")
    elif failed:
        face.note("the same command with --retry-failed asks those again that failed")
