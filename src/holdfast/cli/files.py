"""`holdfast sessions export` and `import`: sessions as files."""

import sys
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, BinaryIO

import click
import msgspec

from holdfast.cli import errors, face, render
from holdfast.interop import export as exporting
from holdfast.interop import imports, people
from holdfast.model.errors import HoldfastError, Invalid, NotFound
from holdfast.model.ids import SESSION
from holdfast.model.session import Session
from holdfast.store import log, private, verify
from holdfast.store import sessions as store
from holdfast.store.database import Database, Transaction
from holdfast.store.transfer import Merged

if TYPE_CHECKING:
    from holdfast.app import App

FORMATS = ("jsonl", "md", "html")
SAID = {
    "new": "imported",
    "same": "is already here",
    "extended": "was here in part; the rest was added",
    "behind": "is already here and has gone on since; it was left alone",
}


@click.command()
@click.argument("ref", required=False)
@click.option(
    "--all", "everything", is_flag=True, help="Every session of the store, one file each in the folder --out."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="jsonl",
    show_default=True,
    help="jsonl loses nothing and can be imported; the others are for people.",
)
@click.option("--out", type=click.Path(path_type=Path), help="A file instead of standard output; only you can read it.")
@click.option("--force", is_flag=True, help="Replace files that exist.")
@face.json_option
def export(*, ref: str | None, everything: bool, form: str, out: Path | None, force: bool, as_json: bool) -> None:
    """Write a session to a file, or all of them to a folder."""
    if everything == (ref is not None):
        raise click.UsageError("name one session, or --all of them")
    if out is None and (everything or as_json):
        raise click.UsageError(f"{'--all' if everything else '--json'} needs --out")
    written = face.with_app(lambda app: _export(app.database, ref, form, out, force=force))
    if as_json:
        render.document({"files": [{"session_id": one, "file": str(path)} for one, path in written]})
    elif out is not None:
        face.note(f"wrote {len(written)} {'file' if len(written) == 1 else 'files'} to {out}")


async def _export(
    database: Database, ref: str | None, form: str, out: Path | None, *, force: bool
) -> list[tuple[str, Path]]:
    ids = await database.read(_every_id) if ref is None else [await _id_of(database, ref)]
    if out is None:
        async for text in _pieces(database, ids[0], form):
            render.out(text, end="")
        return []
    if ref is None:
        _make_folder(out)
    targets = [(one, out if ref is not None else out / f"{one}.{form}") for one in ids]
    for session_id, path in targets:
        with private.new_file(path, replace=force) as stream:
            async for text in _pieces(database, session_id, form):
                stream.write(text)
    return targets


async def _id_of(database: Database, ref: str) -> str:
    found = await database.read(store.resolve, ref, trashed=True)
    face.tell_others(ref, found)
    return found.session.id


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError as e:
        raise Invalid(f"{folder} is a file; --all needs a folder") from e
    except OSError as e:
        raise private.translate(e, folder) from e


def _every_id(tx: Transaction) -> list[str]:
    return list(verify.every_id(tx))


async def _pieces(database: Database, session_id: str, form: str) -> AsyncIterator[str]:
    if form == "jsonl":
        async for text in exporting.jsonl(database, session_id):
            yield text
    else:
        yield await database.read(_for_people, session_id, form)


def _for_people(tx: Transaction, session_id: str, form: str) -> str:
    session = store.get(tx, session_id)
    entries = log.read_whole(tx, session)
    return people.markdown(session, entries) if form == "md" else people.page(session, entries)


class Result(msgspec.Struct, frozen=True):
    """What became of one file."""

    file: str
    merged: Merged | None
    error: HoldfastError | None = None


@click.command("import")
@click.argument("files", metavar="FILE...", nargs=-1, required=True)
@click.option("--as-new", is_flag=True, help="Under a new id, whatever is here under the old one.")
@face.json_option
@click.pass_context
def import_(ctx: click.Context, *, files: tuple[str, ...], as_new: bool, as_json: bool) -> None:
    """Bring exported sessions back; - is standard input.

    Each file is proved first and imported whole or not at all. Importing one again changes nothing.
    """
    results = [_import(name, as_new=as_new) for name in files]
    failed = [result.error for result in results if result.error is not None]
    if failed and len(results) == 1:
        raise failed[0]
    if as_json:
        render.document({"files": [_shape(result) for result in results]})
    for result in [] if as_json else results:
        if result.merged is not None:
            _tell(result.merged)
        elif result.error is not None:
            errors.tell(result.error.code, str(result.error), as_json=False)
    if failed:
        ctx.exit(errors.exit_code(failed[0]))


def _import(name: str, *, as_new: bool) -> Result:
    """One file, whole or not at all. One that cannot be imported stops none of the others.

    It is read before the store is opened, so that an interrupt ends the wait for a pipe.
    """
    try:
        with _opened(name) as file:
            parsed = imports.parse(file, "standard input" if name == "-" else name)
        return Result(name, face.write(lambda tx, app: _store(tx, app, parsed, as_new=as_new)))
    except HoldfastError as e:
        return Result(name, None, e)


def _store(tx: Transaction, app: "App", parsed: imports.Log, *, as_new: bool) -> Merged:
    at = app.clock.now()
    return imports.store_as(tx, parsed, app.ids.make(SESSION), at=at) if as_new else imports.store(tx, parsed, at=at)


@contextmanager
def _opened(name: str) -> Iterator[BinaryIO]:
    if name == "-":
        yield sys.stdin.buffer
        return
    try:
        with Path(name).open("rb") as file:
            yield file
    except FileNotFoundError as e:
        raise NotFound(f"there is no file {name}") from e
    except IsADirectoryError as e:
        raise Invalid(f"{name} is a folder; name the files in it") from e
    except OSError as e:
        raise Invalid(f"cannot read {name}: {e.strerror}") from e


def _tell(merged: Merged) -> None:
    session: Session = merged.session
    render.out(f"{session.id} {SAID[merged.outcome]} ({session.seq} events, {session.summary.message_count} messages)")
    if session.summary.trashed_at is not None:
        face.note(f"it is in the trash; 'holdfast sessions restore {session.id}' brings it back")


def _shape(result: Result) -> dict[str, object]:
    if result.merged is None:
        assert result.error is not None, "a file was imported or it was not"
        return {"file": result.file, "error": {"code": result.error.code, "message": str(result.error)}}
    merged = result.merged
    return {
        "file": result.file,
        "session_id": merged.session.id,
        "outcome": merged.outcome,
        "added": merged.added,
        "seq": merged.session.seq,
        "hash": merged.session.hash,
    }
