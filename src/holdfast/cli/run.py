"""`holdfast run`: run one turn and print the reply."""

import click
import msgspec

from holdfast import config
from holdfast.cli import (
    context,
    errors,
    model_setup,
    render,
    signals,
    stdin_text,
    stopped_worker,
    terminal_question,
    turn_output,
)
from holdfast.cli.progress import Spinner
from holdfast.cli.turn_output import TurnResult
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.engine import Engine
from holdfast.engine.submission import NewMessage
from holdfast.library import CHANNEL
from holdfast.model.errors import Invalid
from holdfast.model.message import Content, Text
from holdfast.model.mode import MODES, Mode
from holdfast.model.sanitize import visible
from holdfast.providers import registry
from holdfast.settings import TERMINALS
from holdfast.wiring.engine import open_engine
from holdfast.wiring.store import App

NOT_APPROVED = "denied"
"""The error code in the JSON document if a tool was not run because nobody answered the approval question."""


@click.command()
@click.argument("prompt")
@click.option("--session", "ref", metavar="REF", help="Continue this session.")
@click.option("--key", metavar="KEY", help="Continue the session with this key, or create it.")
@click.option("--model", metavar="PROVIDER:NAME", help="Set the model of the session.")
@click.option("--title", help="Set the title of a new session.")
@click.option("--terminal", type=click.Choice(TERMINALS), help="Run commands in this backend, for a new session.")
@click.option("--mode", type=click.Choice(MODES), help="Set the permission mode of the session.")
@click.option("--stdin/--no-stdin", "stdin", default=None, help="Wait for piped input, or ignore it.")
@context.json_option
def run(
    *,
    prompt: str,
    ref: str | None,
    key: str | None,
    model: str | None,
    title: str | None,
    terminal: str | None,
    mode: Mode | None,
    stdin: bool | None,
    as_json: bool,
) -> int:
    """Run one turn and print the reply. PROMPT is the text; `-` reads it from standard input."""
    if ref is not None and key is not None:
        raise click.UsageError("--session and --key cannot be used together")
    if prompt.strip() in ("", "-") and stdin is not None:
        raise click.UsageError("--stdin and --no-stdin need a PROMPT other than -")
    parts = _input_parts(prompt, stdin)
    if model is not None:
        registry.parse(model)
    if ref is None and key is None:
        model_setup.require_model(model or context.settings().model)
    channel = None if key is None else CHANNEL + key
    opening = OpenRequest(
        ref=ref,
        channel=channel,
        source="run",
        own=True,
        model=model,
        title=title,
        workdir=config.workdir(),
        terminal=terminal or "",
        mode=mode,
    )
    context.hide_secrets()
    return context.with_app(lambda app: _run(app, opening, parts, as_json=as_json))


def _input_parts(prompt: str, stdin: bool | None) -> tuple[Content, ...]:
    """The prompt, followed by the piped input. Raises Invalid if the prompt is empty."""
    text = stdin_text.read_all() if prompt == "-" else prompt
    if not text.strip():
        raise Invalid("the prompt is empty")
    attached = "" if prompt == "-" or stdin is False else stdin_text.read_attached(wait=stdin is True)
    if not attached.strip():
        return (Text(text),)
    return (Text(text), Text(f"\n\n[standard input]\n{attached}"))


async def _run(app: App, opening: OpenRequest, parts: tuple[Content, ...], *, as_json: bool) -> int:
    attended = not as_json and terminal_question.can_ask()
    opened = open_engine(
        app.database,
        app.settings,
        config.environment(),
        supervisor=app.supervisor,
        kind="run",
        attended=attended,
        leaves_queue=True,
    )
    async with opened as engine:
        turn = _turn(engine, opening, parts, as_json=as_json, attended=attended)
        return await signals.run_until_signalled(turn, engine.drain, engine.death)


async def _turn(
    engine: Engine, opening: OpenRequest, parts: tuple[Content, ...], *, as_json: bool, attended: bool
) -> int:
    opened = await engine.open(opening)
    if opening.ref is not None:
        context.note_ambiguous(opening.ref, opened)
    text_stream, note_stream = (None, None) if as_json else turn_output.streams()
    services, session_id = engine.services, opened.session.id
    async with (
        Spinner("thinking") as spinner,
        stopped_worker.watch(services.database, session_id, services.worker_id, spinner.note),
    ):
        turn = await engine.submit(NewMessage(session_id, parts), stream="live")
        items = turn_output.stop_spinner_at_output(turn.follow(), spinner)
        if attended:
            items = terminal_question.ask_during(engine, session_id, items)
        outcome = await turn_output.show(items, text_stream=text_stream, note_stream=note_stream)
    if as_json:
        await _print_json(engine, opened.session.id, outcome)
    elif text_stream is None and outcome.text:
        render.print_text(visible(outcome.text))
    return _report_status(opened.session.id, outcome, quiet=as_json)


async def _print_json(engine: Engine, session_id: str, outcome: TurnResult) -> None:
    session, _ = await engine.read(session_id)
    ended = outcome.ended
    document: dict[str, object] = {
        "session_id": session_id,
        "turn_id": ended.turn_id,
        "epoch": session.summary.epoch,
        "compacted": outcome.compacted,
        "seq": outcome.seq,
        "text": outcome.text,
        "usage": msgspec.structs.asdict(ended.usage),
    }
    if outcome.unanswered:
        document["error"] = {"code": NOT_APPROVED, "message": _not_approved(outcome)}
    if (problem := turn_output.failure_message(ended)) is not None:
        document["error"] = {"code": ended.code or ended.outcome, "message": problem}
    render.print_json(document)


def _not_approved(outcome: TurnResult) -> str:
    """The message about tools that were not run because nobody answered the approval question."""
    return (
        f"not run, approval timed out: {', '.join(outcome.unanswered)}; use 'holdfast chat', "
        "or raise agent.approval_seconds and answer with 'holdfast questions' or the dashboard"
    )


def _report_status(session_id: str, outcome: TurnResult, *, quiet: bool) -> int:
    problem = turn_output.failure_message(outcome.ended)
    if problem is None and not outcome.unanswered:
        return errors.DONE
    problem = problem or _not_approved(outcome)
    if not quiet:
        context.note(f"holdfast: {problem} (session {session_id})")
    return errors.INTERRUPTED if outcome.ended.outcome == "interrupted" else errors.FAILED
