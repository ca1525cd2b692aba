"""`holdfast sessions export`: write sessions to files."""

from collections.abc import AsyncIterator
from pathlib import Path

import click

from holdfast.cli import context, render
from holdfast.cli.parsing.non_empty_types import PATH
from holdfast.cli.parsing.session_ref import REF
from holdfast.interop.export import jsonl as exporting
from holdfast.interop.export.formats import FORMATS, read_rendered
from holdfast.model.errors import Invalid
from holdfast.model.text import counted
from holdfast.store import atomic_file, verify
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import sessions as store


@click.command()
@click.argument("ref", type=REF, required=False)
@click.option(
    "--all", "everything", is_flag=True, help="Export every session, one file each, into the directory --out."
)
@click.option(
    "--format",
    "form",
    type=click.Choice(FORMATS),
    default="jsonl",
    show_default=True,
    help="Choose the format. jsonl is complete and can be imported; md and html are for reading.",
)
@click.option(
    "--out",
    type=PATH,
    help="Write to this file, readable only by you, instead of standard output.",
)
@click.option("--force", is_flag=True, help="Replace existing files.")
@context.json_option
def export(*, ref: str | None, everything: bool, form: str, out: Path | None, force: bool, as_json: bool) -> None:
    """Export a session to a file, or all sessions to a directory."""
    if everything == (ref is not None):
        raise click.UsageError("give a session or --all, and not both")
    if out is None and (everything or as_json):
        raise click.UsageError(f"{'--all' if everything else '--json'} needs --out")
    written = context.with_app(lambda app: _export(app.database, ref, form, out, force=force))
    if as_json:
        render.print_json({"files": [{"session_id": one, "file": str(path)} for one, path in written]})
    elif out is not None:
        context.note(f"wrote {counted(len(written), 'file')} to {out}")


async def _export(
    database: Database, ref: str | None, form: str, out: Path | None, *, force: bool
) -> list[tuple[str, Path]]:
    ids = await database.read(_every_id) if ref is None else [await _id_of(database, ref)]
    if out is None:
        async for text in _pieces(database, ids[0], form):
            render.print_text(text, end="")
        return []
    if ref is None:
        _make_folder(out)
    targets = [(one, out if ref is not None else out / f"{one}.{form}") for one in ids]
    for session_id, path in targets:
        with atomic_file.new_file(path, replace=force) as stream:
            async for text in _pieces(database, session_id, form):
                stream.write(text)
    return targets


async def _id_of(database: Database, ref: str) -> str:
    found = await database.read(store.resolve, ref, trashed=True)
    context.note_ambiguous(ref, found)
    return found.session.id


def _make_folder(folder: Path) -> None:
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except FileExistsError as e:
        raise Invalid(f"{folder} is a file; --all needs a directory") from e
    except OSError as e:
        raise atomic_file.translate(e, folder) from e


def _every_id(tx: Transaction) -> list[str]:
    return list(verify.iterate_ids(tx))


async def _pieces(database: Database, session_id: str, form: str) -> AsyncIterator[str]:
    if form == "jsonl":
        async for text in exporting.export_lines(database, session_id):
            yield text
    else:
        yield await database.read(read_rendered, session_id, form, context.settings().home)
