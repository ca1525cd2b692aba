"""`holdfast sessions import`: brings sessions from files, ours or another program's."""

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

from holdfast.cli import errors, face, render
from holdfast.interop.bring import Bringing, Given, Result
from holdfast.interop.visible import visible
from holdfast.model.counted import counted
from holdfast.model.errors import Invalid

if TYPE_CHECKING:
    from holdfast.app import App
    from holdfast.interop.tally import Adopted
    from holdfast.model.session import Session

STDIN = "standard input"
SAID = {
    "new": "imported",
    "same": "is already here",
    "extended": "was here in part; the rest was added",
    "behind": "is already here and has gone on since; it was left alone",
    "empty": "nothing to import",
    "left": "left alone",
}
WOULD = SAID | {"new": "would be imported", "extended": "is here in part; the rest would be added"}


@click.command("import")
@click.argument("paths", metavar="PATH...", nargs=-1, required=True)
@click.option(
    "--as-new", is_flag=True, help="An export of Holdfast under a new id, whatever is here under the old one."
)
@click.option("--dry-run", is_flag=True, help="Only tell what would be done.")
@face.json_option
@click.pass_context
def import_(ctx: click.Context, *, paths: tuple[str, ...], as_new: bool, dry_run: bool, as_json: bool) -> None:
    """Bring sessions from files or folders; - is standard input.

    Reads exports of Holdfast, state.db of Hermes, rollouts of Codex, projects of Claude Code and conversations.json of ChatGPT.
    Importing again adds only what is new.
    """
    with ExitStack() as stack:
        given = [stack.enter_context(_given(path)) for path in paths]
        results = face.with_app(lambda app: _bring(app, given, as_new=as_new, dry_run=dry_run))
    if as_json:
        render.document({"files": [_shape(result) for result in results], "counts": _counts(results)})
    else:
        for result in results:
            _tell(result, WOULD if dry_run else SAID)
        _sum_up(results)
    ctx.exit(_status(results))


async def _bring(app: "App", given: list[Given], *, as_new: bool, dry_run: bool) -> list[Result]:
    bringing = Bringing(app.database, app.clock, app.ids, as_new=as_new, rehearse=dry_run)
    with render.progress("importing") as update:
        return [result async for result in bringing.go(given, update)]


@contextmanager
def _given(name: str) -> Iterator[Given]:
    """Where the file lies. What can be read only once is copied to a private file first.

    That happens before the store is opened, so that an interrupt ends the wait for a pipe.
    """
    path = Path(name)
    is_pipe = name != "-" and path.exists() and not (path.is_file() or path.is_dir())
    if name != "-" and not is_pipe:
        yield Given(name, path)
        return
    with tempfile.TemporaryDirectory(prefix="holdfast-import-") as folder:
        copy = Path(folder, "input")
        _copy(sys.stdin.buffer if name == "-" else _open(path), copy)
        yield Given(STDIN if name == "-" else name, copy)


def _open(path: Path) -> BinaryIO:
    try:
        if not stat.S_ISFIFO(path.stat().st_mode):
            raise Invalid(f"{path} is neither a file nor a folder")
        return path.open("rb")
    except OSError as e:
        raise Invalid(f"cannot read {path}: {e.strerror}") from e


def _copy(source: BinaryIO, target: Path) -> None:
    from holdfast.store import private

    try:
        with source, os.fdopen(os.open(target, os.O_CREAT | os.O_WRONLY | os.O_EXCL, 0o600), "wb") as file:
            shutil.copyfileobj(source, file, 1 << 20)
    except OSError as e:
        raise private.translate(e, target) from e


def _tell(result: Result, said: dict[str, str]) -> None:
    if result.error is not None:
        errors.tell(result.error.code, str(result.error), as_json=False)
    elif result.ignored:
        face.note(f"passed over: {result.ignored}")
    elif result.merged is not None:
        session = result.merged.session
        events = f"({counted(session.seq, 'event')}, {counted(session.summary.message_count, 'message')})"
        render.out(f"{session.id} {said[result.merged.outcome]} {events}")
        _tell_trash(session)
    elif result.taken is not None:
        _tell_taken(result.taken, said)


def _tell_taken(taken: "Adopted", said: dict[str, str]) -> None:
    name = taken.session.id if taken.session is not None else "-"
    title = taken.session.summary.title if taken.session is not None else None
    counted = f"{taken.taken} message{'' if taken.taken == 1 else 's'}" + (
        f", {taken.copied} repeated" if taken.copied else ""
    )
    line = f"{name} {said[taken.outcome]} ({counted}) {taken.format} {taken.origin} {title or ''}"
    render.out(visible(line).rstrip())
    for note in taken.notes:
        render.out(f"    {visible(note)}")
    if taken.session is not None:
        _tell_trash(taken.session)


def _tell_trash(session: "Session") -> None:
    if session.summary.trashed_at is not None:
        face.note(f"it is in the trash; 'holdfast sessions restore {session.id}' brings it back")


def _outcome(result: Result) -> str:
    if result.error is not None:
        return "failed"
    if result.taken is not None:
        return result.taken.outcome
    return result.merged.outcome if result.merged is not None else "ignored"


def _counts(results: list[Result]) -> dict[str, int]:
    counts = dict.fromkeys((*SAID, "failed", "ignored"), 0)
    for result in results:
        counts[_outcome(result)] += 1
    return counts


def _sum_up(results: list[Result]) -> None:
    if len(results) > 1:
        face.note(", ".join(f"{count} {name}" for name, count in _counts(results).items() if count))


def _status(results: list[Result]) -> int:
    """What could not be saved or found says so; any other failure is 1. Files of a folder that hold no sessions are none."""
    codes = {errors.exit_code(result.error) for result in results if result.error is not None}
    if not codes:
        return errors.DONE
    if errors.NOT_SAVED in codes:
        return errors.NOT_SAVED
    return codes.pop() if codes in ({errors.NOT_FOUND}, {errors.BUSY}) else errors.FAILED


def _shape(result: Result) -> dict[str, object]:
    place: dict[str, object] = {"file": result.file}
    if result.error is not None:
        return place | {"error": {"code": result.error.code, "message": str(result.error)}}
    if result.ignored:
        return place | {"ignored": result.ignored}
    place["format"] = result.format
    if result.merged is not None:
        return place | _placed(result.merged.session, result.merged.outcome, result.merged.added)
    taken = result.taken
    assert taken is not None, "a file was imported or it was not"
    counted = {"source": taken.source, "taken": taken.taken, "copied": taken.copied, "skipped": taken.skipped}
    return place | {
        "origin": taken.origin,
        **_placed(taken.session, taken.outcome, taken.added),
        "messages": counted,
        "notes": list(taken.notes),
    }


def _placed(session: "Session | None", outcome: str, added: int) -> dict[str, object]:
    return {
        "session_id": None if session is None else session.id,
        "outcome": outcome,
        "added": added,
        "seq": 0 if session is None else session.seq,
        "hash": None if session is None else session.hash,
    }
