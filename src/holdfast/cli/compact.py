"""`holdfast compact`: make a session's context smaller now, or undo that."""

import click
import msgspec

from holdfast import config
from holdfast.app import App
from holdfast.assemble import open_engine
from holdfast.cli import errors, face, render, signals
from holdfast.cli.spinner import Spinner
from holdfast.engine.engine import Engine
from holdfast.engine.opening import Opening
from holdfast.interop.visible import visible
from holdfast.model.event import Compacted, CompactionFailed
from holdfast.model.session import Session


@click.command()
@click.argument("ref")
@click.option("--about", default="", metavar="TEXT", help="What matters most, for whoever writes the summary.")
@click.option("--undo", is_flag=True, help="Show the model again what it was shown before the last compaction.")
@face.json_option
def compact(*, ref: str, about: str, undo: bool, as_json: bool) -> int:
    """Make the context of a session smaller. The log stays whole, and so does the session's id."""
    if undo and about:
        raise click.UsageError("--undo has nothing to be about")
    return face.with_app(lambda app: _compact(app, ref, about, undo=undo, as_json=as_json))


async def _compact(app: App, ref: str, about: str, *, undo: bool, as_json: bool) -> int:
    async with open_engine(app.database, app.settings, config.environment(), kind="compact") as engine:
        opened = await engine.open(Opening(ref=ref))
        face.tell_others(ref, opened)
        work = (
            _undo(engine, opened.session, as_json=as_json)
            if undo
            else _do(engine, opened.session, about, as_json=as_json)
        )
        return await signals.unless_signalled(work, engine.drain, engine.death)


async def _do(engine: Engine, session: Session, about: str, *, as_json: bool) -> int:
    async with Spinner("summing up"):
        event = await engine.compact(session.id, about)
    if as_json:
        render.document(_document(session, event))
    else:
        render.out(visible(_told(session, event)))
    return errors.DONE if isinstance(event, Compacted) else errors.FAILED


async def _undo(engine: Engine, session: Session, *, as_json: bool) -> int:
    event = await engine.undo_compaction(session.id)
    if as_json:
        render.document({"session_id": session.id, "epoch": event.epoch, "undone": True})
    else:
        render.out(f"{session.id} is back at epoch {event.epoch}; it is compacted again when it gets too long")
    return errors.DONE


def _document(session: Session, event: Compacted | CompactionFailed) -> dict[str, object]:
    done = isinstance(event, Compacted)
    epoch = event.epoch if isinstance(event, Compacted) else session.summary.epoch
    return {"session_id": session.id, "epoch": epoch, "compacted": done, **msgspec.to_builtins(event)}


def _told(session: Session, event: Compacted | CompactionFailed) -> str:
    if isinstance(event, CompactionFailed):
        return f"{session.id} was not compacted: {event.reason}"
    by = f" by {event.model}" if event.model else ""
    failed = f"; {event.reason}" if event.reason else ""
    return (
        f"{session.id} is at epoch {event.epoch}: {event.tokens_before:,} → {event.tokens_after:,} tokens "
        f"({event.how}{by}, events up to {event.upto_seq}{failed}); 'holdfast compact --undo {session.id}' takes it back"
    )
