"""`holdfast sessions import`: import sessions from files of Holdfast or of other programs."""

import os
import shutil
import stat
import sys
import tempfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click

from holdfast.cli import context, errors, render
from holdfast.cli.parsing.non_empty_types import TEXT
from holdfast.cli.progress import show_progress
from holdfast.interop.importing.runner import ImportInput, ImportResult, ImportRun
from holdfast.model.errors import Invalid
from holdfast.model.sanitize import visible
from holdfast.model.text import counted

if TYPE_CHECKING:
    from holdfast.interop.importing.report import ImportOutcome
    from holdfast.model.session import Session
    from holdfast.wiring.store import App

STDIN = "standard input"
OUTCOMES = {
    "new": "imported",
    "same": "already imported",
    "extended": "updated with new messages",
    "behind": "already imported and continued here; unchanged",
    "empty": "nothing to import",
    "left": "unchanged",
}
DRY_RUN_OUTCOMES = OUTCOMES | {"new": "would be imported", "extended": "would be updated with new messages"}


@click.command("import")
@click.argument("paths", metavar="PATH...", nargs=-1, type=TEXT, required=True)
@click.option("--as-new", is_flag=True, help="Import Holdfast exports under new ids.")
@click.option("--dry-run", is_flag=True, help="Show what would be imported; change nothing.")
@context.json_option
@click.pass_context
def import_(ctx: click.Context, *, paths: tuple[str, ...], as_new: bool, dry_run: bool, as_json: bool) -> None:
    """Import sessions from files or directories.

    PATH can be a Holdfast export, state.db of Hermes, rollouts of Codex, projects of Claude Code, conversations.json of
    ChatGPT, or - for standard input. Importing again adds only what is new.
    """
    with ExitStack() as stack:
        inputs = [stack.enter_context(_open_input(path)) for path in paths]
        results = context.with_app(lambda app: _import(app, inputs, as_new=as_new, dry_run=dry_run))
    if as_json:
        render.print_json({"files": [_to_json(result) for result in results], "counts": _counts(results)})
    else:
        for result in results:
            _print_result(result, DRY_RUN_OUTCOMES if dry_run else OUTCOMES)
        _print_totals(results)
    ctx.exit(_status(results))


async def _import(app: "App", inputs: list[ImportInput], *, as_new: bool, dry_run: bool) -> list[ImportResult]:
    run = ImportRun(app.database, app.clock, app.ids, as_new=as_new, dry_run=dry_run)
    with show_progress("importing") as update:
        return [result async for result in run.run(inputs, update)]


@contextmanager
def _open_input(name: str) -> Iterator[ImportInput]:
    """The input file. Standard input and pipes are copied to a private file first.

    That happens before the store is opened, so that an interrupt ends the wait for a pipe.
    """
    path = Path(name)
    is_pipe = name != "-" and path.exists() and not (path.is_file() or path.is_dir())
    if name != "-" and not is_pipe:
        yield ImportInput(name, path)
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-import-") as folder:
        copy = Path(folder, "input")
        _copy(sys.stdin.buffer if name == "-" else _open(path), copy)
        yield ImportInput(STDIN if name == "-" else name, copy)


def _open(path: Path) -> BinaryIO:
    try:
        if not stat.S_ISFIFO(path.stat().st_mode):
            raise Invalid(f"{path} is neither a file nor a directory")
        return path.open("rb")
    except OSError as e:
        raise Invalid(f"cannot read {path}: {e.strerror}") from e


def _copy(source: BinaryIO, target: Path) -> None:
    from holdfast.store import atomic_file

    try:
        with source, os.fdopen(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
    except OSError as e:
        raise atomic_file.translate(e, target) from e


def _print_result(result: ImportResult, outcomes: dict[str, str]) -> None:
    if result.error is not None:
        errors.report(result.error.code, str(result.error), as_json=False)
    elif result.ignored:
        context.note(f"skipped: {result.ignored}")
    elif result.merged is not None:
        session = result.merged.session
        events = f"({counted(session.seq, 'event')}, {counted(session.summary.message_count, 'message')})"
        render.print_text(f"{session.id} {outcomes[result.merged.outcome]} {events}")
        _note_trash(session)
    elif result.taken is not None:
        _print_foreign(result.taken, outcomes)


def _print_foreign(taken: "ImportOutcome", outcomes: dict[str, str]) -> None:
    name = taken.session.id if taken.session is not None else "-"
    title = taken.session.summary.title if taken.session is not None else None
    count = counted(taken.taken, "message") + (f", {taken.copied} repeated" if taken.copied else "")
    line = f"{name} {outcomes[taken.outcome]} ({count}) {taken.format} {taken.origin} {title or ''}"
    render.print_text(visible(line).rstrip())
    for note in taken.notes:
        render.print_text(f"    {visible(note)}")
    if taken.session is not None:
        _note_trash(taken.session)


def _note_trash(session: "Session") -> None:
    if session.summary.trashed_at is not None:
        context.note(f"{session.id} is in the trash; restore it with: holdfast sessions restore {session.id}")


def _outcome(result: ImportResult) -> str:
    if result.error is not None:
        return "failed"
    if result.taken is not None:
        return result.taken.outcome
    return result.merged.outcome if result.merged is not None else "ignored"


def _counts(results: list[ImportResult]) -> dict[str, int]:
    counts = dict.fromkeys((*OUTCOMES, "failed", "ignored"), 0)
    for result in results:
        counts[_outcome(result)] += 1
    return counts


def _print_totals(results: list[ImportResult]) -> None:
    if len(results) > 1:
        context.note(", ".join(f"{count} {name}" for name, count in _counts(results).items() if count))


def _status(results: list[ImportResult]) -> int:
    """The exit code. Not saved wins; not found and busy count if all failures are of that kind. An ignored file is no failure."""
    codes = {errors.exit_code(result.error) for result in results if result.error is not None}
    if not codes:
        return errors.DONE
    if errors.NOT_SAVED in codes:
        return errors.NOT_SAVED
    return codes.pop() if codes in ({errors.NOT_FOUND}, {errors.BUSY}) else errors.FAILED


def _to_json(result: ImportResult) -> dict[str, object]:
    document: dict[str, object] = {"file": result.file}
    if result.error is not None:
        return document | {"error": {"code": result.error.code, "message": str(result.error)}}
    if result.ignored:
        return document | {"ignored": result.ignored}
    document["format"] = result.format
    if result.merged is not None:
        return document | _session_fields(result.merged.session, result.merged.outcome, result.merged.added)
    taken = result.taken
    assert taken is not None, "a result has an outcome"
    message_counts = {"source": taken.source, "taken": taken.taken, "copied": taken.copied, "skipped": taken.skipped}
    return document | {
        "origin": taken.origin,
        **_session_fields(taken.session, taken.outcome, taken.added),
        "messages": message_counts,
        "notes": list(taken.notes),
    }


def _session_fields(session: "Session | None", outcome: str, added: int) -> dict[str, object]:
    return {
        "session_id": None if session is None else session.id,
        "outcome": outcome,
        "added": added,
        "seq": 0 if session is None else session.seq,
        "hash": None if session is None else session.hash,
    }
