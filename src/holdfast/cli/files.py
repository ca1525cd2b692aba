"""`holdfast sessions export`: sessions as files."""

from collections.abc import AsyncIterator
from pathlib import Path

import click

from holdfast.cli import face, render
from holdfast.interop import export as exporting
from holdfast.interop import people
from holdfast.model.errors import Invalid
from holdfast.store import log, private, verify
from holdfast.store import sessions as store
from holdfast.store.database import Database, Transaction

FORMATS = ("jsonl", "md", "html")


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
