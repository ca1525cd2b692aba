"""`holdfast sessions rewind`: take back the conversation, the files that tools changed, or both."""

import sys

import click

from holdfast import config
from holdfast.cli import context, errors, render, signals
from holdfast.cli.parsing.session_ref import REF
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.engine import Engine
from holdfast.engine.rewinds import RewindPlan
from holdfast.interop.documents.rewinds import RewindResponse
from holdfast.model.mode import LOCAL_USER
from holdfast.model.sanitize import visible
from holdfast.slash.rewind import RewindArguments, describe_result
from holdfast.wiring.engine import open_engine
from holdfast.wiring.store import App


@click.command()
@click.argument("ref", type=REF)
@click.option("--turns", type=click.IntRange(1), metavar="NUMBER", help="Take back this many exchanges; 1 by default.")
@click.option(
    "--to", "message", type=click.IntRange(1), metavar="SEQ", help="Go back to before the turn with this event."
)
@click.option("--undo", is_flag=True, help="Undo the last rewind of files.")
@click.option("--files", "what", flag_value="files", help="Restore only the files.")
@click.option("--conversation", "what", flag_value="conversation", help="Take back only the conversation.")
@click.option("--force", multiple=True, metavar="PATH", help="Restore this file although others have changed it.")
@click.option("--preview", is_flag=True, help="Show what would change, and change nothing.")
@click.option("--yes", is_flag=True, help="Do not ask.")
@context.json_option
def rewind(
    *,
    ref: str,
    turns: int | None,
    message: int | None,
    undo: bool,
    what: str | None,
    force: tuple[str, ...],
    preview: bool,
    yes: bool,
    as_json: bool,
) -> int:
    """Rewind a session, and restore the files that its tools changed. Shows a diff and asks first."""
    if (turns is not None) + (message is not None) + undo > 1:
        raise click.UsageError("--turns, --to and --undo cannot be used together")
    if not (preview or yes) and (as_json or not sys.stdin.isatty()):
        raise click.UsageError("without a terminal, --yes or --preview is needed")
    given = RewindArguments(turns or 1, message, undo, what or "both", force)
    context.hide_secrets()
    return context.with_app(lambda app: _rewind(app, ref, given, preview=preview, yes=yes, as_json=as_json))


async def _rewind(app: App, ref: str, given: RewindArguments, *, preview: bool, yes: bool, as_json: bool) -> int:
    async with open_engine(
        app.database, app.settings, config.environment(), supervisor=app.supervisor, kind="rewind"
    ) as engine:
        opened = await engine.open(OpenRequest(ref=ref))
        context.note_ambiguous(ref, opened)
        work = _run(engine, opened.session.id, given, preview=preview, yes=yes, as_json=as_json)
        return await signals.run_until_signalled(work, engine.drain, engine.death)


async def _run(
    engine: Engine, session_id: str, given: RewindArguments, *, preview: bool, yes: bool, as_json: bool
) -> int:
    plan = await _plan(engine, session_id, given)
    shown = engine.rewinds.preview(plan)
    if not as_json:
        render.print_text(visible(shown) or "No file was changed by tools since.")
        render.flush()
    if not preview and not yes and not click.confirm("Go back?"):
        context.note("nothing was changed")
        return errors.FAILED
    failed: dict[str, str] = {}
    if not preview:
        result = await engine.rewinds.apply(plan, by=LOCAL_USER)
        failed = result.failed
        if not as_json:
            render.print_text(visible(describe_result(result, f"holdfast sessions rewind {plan.session_id} --undo")))
    if as_json:
        render.print_json(RewindResponse.from_plan(plan, shown, done=not preview, failed=failed))
    return errors.FAILED if failed else errors.DONE


async def _plan(engine: Engine, session_id: str, given: RewindArguments) -> RewindPlan:
    if given.undo:
        return await engine.rewinds.plan_undo(session_id, force=given.force)
    return await engine.rewinds.plan(
        session_id,
        turns=given.turns,
        message=given.message,
        conversation=given.what != "files",
        files=given.what != "conversation",
        force=given.force,
    )
