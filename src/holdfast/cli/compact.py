"""`holdfast compact`: compact the context of a session now, or undo the last compaction."""

import click

from holdfast import config
from holdfast.cli import context, errors, render, signals
from holdfast.cli.parsing.session_ref import REF
from holdfast.cli.progress import Spinner
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.engine import Engine
from holdfast.interop.documents.explanation import compaction_document
from holdfast.model.event import Compacted, CompactionFailed
from holdfast.model.sanitize import visible
from holdfast.model.session import Session
from holdfast.wiring.engine import open_engine
from holdfast.wiring.store import App


@click.command()
@click.argument("ref", type=REF)
@click.option("--about", default="", metavar="TEXT", help="Focus the summary on this.")
@click.option("--undo", is_flag=True, help="Undo the last compaction.")
@context.json_option
def compact(*, ref: str, about: str, undo: bool, as_json: bool) -> int:
    """Compact the context of a session. Its log and id stay the same."""
    if undo and about:
        raise click.UsageError("--about and --undo cannot be used together")
    context.hide_secrets()
    return context.with_app(lambda app: _compact(app, ref, about, undo=undo, as_json=as_json))


async def _compact(app: App, ref: str, about: str, *, undo: bool, as_json: bool) -> int:
    async with open_engine(
        app.database, app.settings, config.environment(), supervisor=app.supervisor, kind="compact"
    ) as engine:
        opened = await engine.open(OpenRequest(ref=ref))
        context.note_ambiguous(ref, opened)
        work = (
            _undo(engine, opened.session, as_json=as_json)
            if undo
            else _do(engine, opened.session, about, as_json=as_json)
        )
        return await signals.run_until_signalled(work, engine.drain, engine.death)


async def _do(engine: Engine, session: Session, about: str, *, as_json: bool) -> int:
    async with Spinner("compacting"):
        event = await engine.compact(session.id, about)
    if as_json:
        render.print_json(compaction_document(session, event))
    else:
        render.print_text(visible(_summary(session, event)))
    return errors.DONE if isinstance(event, Compacted) else errors.FAILED


async def _undo(engine: Engine, session: Session, *, as_json: bool) -> int:
    event = await engine.undo_compaction(session.id)
    if as_json:
        render.print_json(compaction_document(session, event))
    else:
        render.print_text(
            f"Undid the compaction of {session.id} (epoch {event.epoch}). A full context is compacted again."
        )
    return errors.DONE


def _summary(session: Session, event: Compacted | CompactionFailed) -> str:
    if isinstance(event, CompactionFailed):
        return f"{session.id} was not compacted: {event.reason}"
    by = f" by {event.model}" if event.model else ""
    reason = f"; {event.reason}" if event.reason else ""
    return (
        f"Compacted {session.id}: {event.tokens_before:,} → {event.tokens_after:,} tokens, epoch {event.epoch} "
        f"({event.how}{by}, events up to {event.upto_seq}{reason}). Undo with: holdfast compact --undo {session.id}"
    )
