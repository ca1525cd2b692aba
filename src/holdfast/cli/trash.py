"""`holdfast sessions`: into the trash, out of it, and away for good."""

from typing import TYPE_CHECKING

import click

from holdfast.cli import face, render
from holdfast.interop import shapes
from holdfast.model.counted import counted
from holdfast.model.session import Session
from holdfast.model.times import DAY
from holdfast.store import sessions
from holdfast.store.database import Transaction
from holdfast.store.sessions import Found, Prunable

if TYPE_CHECKING:
    from holdfast.app import App


@click.command()
@click.argument("refs", metavar="REF...", nargs=-1, required=True)
@face.json_option
def delete(*, refs: tuple[str, ...], as_json: bool) -> None:
    """Put sessions into the trash, all or none. They can be restored until they are pruned."""

    def work(tx: Transaction, app: "App") -> tuple[list[Found], list[Session]]:
        found = [sessions.resolve(tx, ref, trashed=True) for ref in refs]
        return found, [sessions.trash(tx, one.session.id, at=app.clock.now(), reason="asked for") for one in found]

    found, trashed = face.write(work, *refs)
    for ref, one in zip(refs, found, strict=True):
        face.tell_others(ref, one)
    if as_json:
        return render.document({"sessions": [shapes.session(session) for session in trashed]})
    for session in trashed:
        render.out(f"{session.id} is in the trash; 'holdfast sessions restore {session.id}' brings it back")
    return None


@click.command()
@click.argument("ref")
@face.json_option
def restore(*, ref: str, as_json: bool) -> None:
    """Take a session out of the trash."""

    def work(tx: Transaction, found: Session, app: "App") -> Session:
        return sessions.restore(tx, found.id, at=app.clock.now())

    session = face.change(ref, work, trashed=True)
    if as_json:
        render.document(shapes.session(session))
    else:
        render.out(f"{session.id} is out of the trash")


@click.command()
@click.option(
    "--trashed-days",
    type=click.IntRange(0, 36_500),
    default=30,
    show_default=True,
    help="Only what has lain in the trash for longer than this.",
)
@click.option("--yes", is_flag=True, help="Remove them. Without it they are only listed.")
@face.json_option
def prune(*, trashed_days: int, yes: bool, as_json: bool) -> None:
    """List what lies in the trash for long, or remove it for good.

    Pinned sessions and those somebody holds are never among them. Nothing is pruned unless this is called.
    """
    found, freed = face.with_app(lambda app: _prune(app, trashed_days, remove=yes))
    if as_json:
        listed = [_shape(one) for one in found]
        return render.document({"removed": yes, "sessions": listed, "bytes_freed": freed})
    if not found:
        return face.note(f"nothing has lain in the trash for more than {trashed_days} days")
    rows = [(one.id, render.day(one.trashed_at), str(one.message_count), one.title or one.preview) for one in found]
    render.table(("ID", "TRASHED", "MESSAGES", "TITLE"), rows, stretch=3)
    if yes:
        return face.note(f"removed {counted(len(found), 'session')} for good; {render.size(freed)} given back")
    return face.note("nothing was removed; --yes removes these for good")


async def _prune(app: "App", trashed_days: int, *, remove: bool) -> tuple[list[Prunable], int]:
    """What would be removed, or was."""
    from holdfast.cli import pruning
    from holdfast.store import space

    before = app.clock.now() - trashed_days * DAY
    found = await app.database.read(lambda tx: sessions.prunable(tx, before=before))
    if not remove:
        return found, 0
    gone = set(await pruning.remove(app, [one.id for one in found], before))
    return [one for one in found if one.id in gone], await space.reclaim(app.database)


def _shape(one: Prunable) -> shapes.Json:
    return {
        "id": one.id,
        "title": one.title,
        "trashed_at": shapes.time(one.trashed_at),
        "message_count": one.message_count,
        "preview": one.preview,
    }
