"""`holdfast batch`: run the prompts of a file and write their results to another."""

from pathlib import Path

import click
import msgspec

from holdfast import config
from holdfast.batch.batch import Batch
from holdfast.batch.prompts import BatchPrompt, read
from holdfast.batch.results import ResultFile
from holdfast.cli import context, errors, render, signals
from holdfast.cli.parsing.non_empty_types import PATH
from holdfast.cli.progress import ProgressBar
from holdfast.model.errors import Invalid
from holdfast.model.sanitize import visible
from holdfast.providers import registry
from holdfast.wiring.engine import open_engine
from holdfast.wiring.store import App

LISTED_FAILURES = 10
"""Failed prompts that are listed individually."""


class BatchArguments(msgspec.Struct, frozen=True, kw_only=True):
    """The arguments of the command."""

    prompts: list[BatchPrompt]
    out: Path
    name: str
    workers: int
    retries: bool
    as_json: bool


@click.command()
@click.argument("file", type=PATH)
@click.option("--workers", type=click.IntRange(min=1, max=1000), default=4, help="Run this many prompts at once. [4]")
@click.option("--out", type=PATH, help="Write results to this file. [FILE.results.jsonl]")
@click.option("--name", help="Name the batch. The same prompts under another name run again. [the name of FILE]")
@click.option("--model", metavar="PROVIDER:NAME", help="Use this model for prompts that name none.")
@click.option("--retry-failed", "retries", is_flag=True, help="Retry the prompts that failed.")
@context.json_option
def batch(
    *, file: Path, workers: int, out: Path | None, name: str | None, model: str | None, retries: bool, as_json: bool
) -> int:
    """Run every prompt of a JSONL file.

    Each line of FILE is a prompt and runs in its own session.
    After an interruption or a crash, run the same command again to continue.
    """
    settings = context.settings()
    if model is not None:
        registry.parse(model)
    if out is not None and str(out) == "-":
        raise Invalid("--out must name a file, not standard output")
    name = file.name if name is None else name
    if not name.strip():
        raise Invalid("--name is empty; give a name, or leave it out to use the name of FILE")
    prompts = read(file, name, model or settings.model)
    out = out or file.with_name(f"{file.name.removesuffix('.jsonl')}.results.jsonl")
    if out.resolve() == file.resolve():
        raise Invalid("the results would overwrite the prompts; choose another file with --out")
    arguments = BatchArguments(prompts=prompts, out=out, name=name, workers=workers, retries=retries, as_json=as_json)
    context.hide_secrets()
    return context.with_app(lambda app: _batch(app, arguments))


async def _batch(app: App, arguments: BatchArguments) -> int:
    results = ResultFile(arguments.out, arguments.name)
    try:
        async with open_engine(
            app.database, app.settings, config.environment(), supervisor=app.supervisor, kind="batch"
        ) as engine:
            work = Batch(engine, arguments.name, arguments.prompts, retries=arguments.retries)
            started = app.clock.monotonic()
            async with ProgressBar("batch", app.clock) as progress:
                status = await signals.run_until_signalled(
                    _run_batch(work, results, arguments.workers, progress), engine.drain, engine.death
                )
            _report(work, arguments, status, app.clock.monotonic() - started)
    finally:
        results.close()
    return status


async def _run_batch(work: Batch, results: ResultFile, workers: int, progress: ProgressBar) -> int:
    await work.run(results, workers, progress.update)
    return errors.FAILED if work.failed else errors.DONE


def _report(work: Batch, arguments: BatchArguments, status: int, seconds: float) -> None:
    total, failed = len(arguments.prompts), len(work.failed)
    if arguments.as_json:
        render.print_json(
            {
                "batch": arguments.name,
                "out": str(arguments.out),
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
    for one in work.failed[:LISTED_FAILURES]:
        if one.error is not None:
            context.note(f"line {one.line} failed: {one.error.message} ({one.error.code}, session {one.session_id})")
    if failed > LISTED_FAILURES:
        context.note(f"{failed - LISTED_FAILURES:,} more failed; see {arguments.out}")
    before = f" ({work.before:,} finished earlier)" if work.before else ""
    render.print_text(
        visible(
            f"{work.finished - failed:,} of {total:,} prompts done, {failed:,} failed{before}; results: {arguments.out}"
        )
    )
    if status == errors.INTERRUPTED:
        context.note("interrupted; run the same command again to continue")
    elif failed:
        context.note("run the same command with --retry-failed to retry the failed prompts")
