"""`holdfast sessions delete`, `restore` and `prune`: the trash."""

from typing import TYPE_CHECKING

import click

from holdfast.cli import context, render
from holdfast.cli.parsing.session_ref import REF
from holdfast.clock import format_local_time
from holdfast.interop.documents.sessions import SessionResponse
from holdfast.interop.serialization import Json, format_time
from holdfast.model.session import Session
from holdfast.model.text import counted
from holdfast.model.times import DAY
from holdfast.store.database import Transaction
from holdfast.store.repos import session_pruning, sessions
from holdfast.store.repos.session_pruning import Prunable
from holdfast.store.repos.sessions import ResolvedRef

if TYPE_CHECKING:
    from holdfast.wiring.store import App


@click.command()
@click.argument("refs", type=REF, metavar="REF...", nargs=-1, required=True)
@context.json_option
def delete(*, refs: tuple[str, ...], as_json: bool) -> None:
    """Move sessions to the trash, all or none. They can be restored until they are pruned."""

    found, trashed = context.with_app(lambda app: _trash(app, refs))
    for ref, one in zip(refs, found, strict=True):
        context.note_ambiguous(ref, one)
    if as_json:
        return render.print_json({"sessions": [SessionResponse.from_session(session) for session in trashed]})
    for session in trashed:
        render.print_text(f"Moved {session.id} to the trash. Restore it with: holdfast sessions restore {session.id}")
    return None


async def _trash(app: "App", refs: tuple[str, ...]) -> tuple[list[ResolvedRef], list[Session]]:
    """Trash the sessions; returns them as found and as trashed."""

    def resolve(tx: Transaction) -> list[ResolvedRef]:
        return [sessions.resolve(tx, ref, trashed=True) for ref in refs]

    found = await app.database.read(resolve)
    actions = context.actions_of(app)
    return found, await actions.trash_all([one.session.id for one in found], reason="requested on the command line")


@click.command()
@click.argument("ref", type=REF)
@context.json_option
def restore(*, ref: str, as_json: bool) -> None:
    """Restore a session from the trash."""

    session = context.act(ref, lambda actions, found: actions.restore(found.id), trashed=True)
    if as_json:
        render.print_json(SessionResponse.from_session(session))
    else:
        render.print_text(f"Restored {session.id}")


@click.command()
@click.option(
    "--trashed-days",
    type=click.IntRange(0, 36_500),
    default=30,
    show_default=True,
    help="Select sessions that were trashed more than this many days ago.",
)
@click.option("--yes", is_flag=True, help="Delete them permanently. Without this option they are only listed.")
@context.json_option
def prune(*, trashed_days: int, yes: bool, as_json: bool) -> None:
    """List old sessions in the trash, or delete them permanently.

    Pinned and running sessions are never pruned. Nothing is pruned automatically.
    """
    found, freed = context.with_app(lambda app: _prune(app, trashed_days, remove=yes))
    if as_json:
        listed = [_shape(one) for one in found]
        return render.print_json({"removed": yes, "sessions": listed, "bytes_freed": freed})
    if not found:
        return context.note(f"no session has been in the trash for more than {counted(trashed_days, 'day')}")
    rows = [
        (one.id, format_local_time(one.trashed_at), str(one.message_count), one.title or one.preview) for one in found
    ]
    render.print_table(("ID", "TRASHED", "MESSAGES", "TITLE"), rows, stretch=3)
    if yes:
        return context.note(f"permanently deleted {counted(len(found), 'session')}; freed {render.format_size(freed)}")
    return context.note("nothing was deleted; add --yes to delete these sessions permanently")


async def _prune(app: "App", trashed_days: int, *, remove: bool) -> tuple[list[Prunable], int]:
    """The sessions that would be deleted, or were, and the bytes freed."""
    from holdfast.cli.sessions import prune as pruning
    from holdfast.store import reclaim

    before = app.clock.now() - trashed_days * DAY
    found = await app.database.read(lambda tx: session_pruning.list_prunable(tx, before=before))
    if not remove:
        return found, 0
    deleted = set(await pruning.remove(app, [one.id for one in found], before))
    return [one for one in found if one.id in deleted], await reclaim.reclaim(app.database)


def _shape(one: Prunable) -> Json:
    return {
        "id": one.id,
        "title": one.title,
        "trashed_at": format_time(one.trashed_at),
        "message_count": one.message_count,
        "preview": one.preview,
    }
