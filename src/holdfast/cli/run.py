"""`holdfast run`: run one turn and print the reply."""

from collections.abc import AsyncIterator
from typing import Literal, get_args

import click

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
    turn_documents,
    turn_output,
)
from holdfast.cli.parsing.non_empty_types import TEXT
from holdfast.cli.parsing.session_ref import REF
from holdfast.cli.progress import Spinner
from holdfast.cli.turn_documents import TurnLines
from holdfast.cli.turn_output import TurnResult
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.engine import Engine
from holdfast.engine.goals.actions import MOST_HOURS, MOST_TURNS, GoalChanges
from holdfast.engine.goals.follow import follow_goal
from holdfast.engine.streaming.bus import LiveText
from holdfast.engine.submission import NewMessage, SubmittedTurn
from holdfast.interop.documents.sessions import GoalItem
from holdfast.library import CHANNEL
from holdfast.model.entry import Entry
from holdfast.model.errors import Invalid
from holdfast.model.goal import describe_goal
from holdfast.model.message import Content, Text, text_of
from holdfast.model.mode import LOCAL_USER, MODES, Mode
from holdfast.model.price import HIGHEST_COST
from holdfast.model.sanitize import visible
from holdfast.providers import registry
from holdfast.settings import TERMINALS
from holdfast.wiring.engine import open_engine
from holdfast.wiring.store import App

Format = Literal["text", "json", "stream-json"]
FORMATS: tuple[Format, ...] = get_args(Format)


@click.command()
@click.argument("prompt", required=False)
@click.option("--session", "ref", type=REF, metavar="REF", help="Continue this session.")
@click.option("--key", type=TEXT, metavar="KEY", help="Continue the session with this key, or create it.")
@click.option("--model", metavar="PROVIDER:NAME", help="Set the model of the session.")
@click.option("--title", help="Set the title of a new session.")
@click.option("--terminal", type=click.Choice(TERMINALS), help="Run commands in this backend, for a new session.")
@click.option("--mode", type=click.Choice(MODES), help="Set the permission mode of the session.")
@click.option("--goal", "is_goal", is_flag=True, help="Make PROMPT the goal: run turns until it is reached.")
@click.option("--max-turns", type=click.IntRange(1, MOST_TURNS), metavar="N", help="Limit the turns of the goal.")
@click.option(
    "--max-hours", type=click.FloatRange(0, MOST_HOURS, min_open=True), metavar="N", help="Limit the time of the goal."
)
@click.option(
    "--max-cost",
    type=click.FloatRange(0, HIGHEST_COST, min_open=True),
    metavar="USD",
    help="Limit the cost of the goal.",
)
@click.option("--stdin/--no-stdin", "stdin", default=None, help="Wait for piped input, or ignore it.")
@click.option(
    "--output-format",
    "output",
    type=click.Choice(FORMATS),
    help="Print text, one JSON document, or the turn as JSON lines.",
)
@context.json_option
def run(
    *,
    prompt: str | None,
    ref: str | None,
    key: str | None,
    model: str | None,
    title: str | None,
    terminal: str | None,
    mode: Mode | None,
    is_goal: bool,
    max_turns: int | None,
    max_hours: float | None,
    max_cost: float | None,
    stdin: bool | None,
    output: Format | None,
    as_json: bool,
) -> int:
    """Run one turn and print the reply. PROMPT is the text; `-` reads it from standard input, as does a pipe without PROMPT."""
    if as_json and output not in (None, "json"):
        raise click.UsageError(f"--json and --output-format {output} cannot be used together")
    limits = GoalChanges(max_turns=max_turns, max_hours=max_hours, max_cost=max_cost)
    if limits != GoalChanges() and not is_goal:
        raise click.UsageError("--max-turns, --max-hours and --max-cost need --goal")
    form: Format = "json" if as_json else output or "text"
    if ref is not None and key is not None:
        raise click.UsageError("--session and --key cannot be used together")
    if prompt is not None and prompt.strip() in ("", "-") and stdin is not None:
        raise click.UsageError("--stdin and --no-stdin need a PROMPT other than -")
    parts = (Text(_piped_prompt(stdin)),) if prompt is None else _input_parts(prompt, stdin)
    if model is not None:
        registry.parse(model)
    if ref is None and key is None:
        model_setup.require_model(model or context.settings().model)
    context.require_terminal(terminal)
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
    lines = TurnLines() if form == "stream-json" else None
    status = context.with_app(lambda app: _run(app, opening, parts, form, lines, limits if is_goal else None))
    if lines is not None and not lines.has_result:
        lines.end({"error": {"code": "interrupted", "message": "interrupted before the turn ended"}})
    return status


def _piped_prompt(stdin: bool | None) -> str:
    """The prompt from a pipe, if none is given. Raises UsageError without one."""
    text = "" if stdin is False else stdin_text.read_attached(wait=stdin is True)
    if not text.strip():
        raise click.UsageError("Missing argument 'PROMPT'.")
    return text


def _input_parts(prompt: str, stdin: bool | None) -> tuple[Content, ...]:
    """The prompt, followed by the piped input. Raises Invalid if the prompt is empty."""
    text = stdin_text.read_all() if prompt == "-" else prompt
    if not text.strip():
        raise Invalid("the prompt is empty")
    attached = "" if prompt == "-" or stdin is False else stdin_text.read_attached(wait=stdin is True)
    if not attached.strip():
        return (Text(text),)
    return (Text(text), Text(f"\n\n[standard input]\n{attached}"))


async def _run(
    app: App,
    opening: OpenRequest,
    parts: tuple[Content, ...],
    form: Format,
    lines: TurnLines | None,
    goal: GoalChanges | None,
) -> int:
    attended = form == "text" and terminal_question.can_ask()
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
        turn = _turn(engine, opening, parts, form, lines, goal, attended=attended)
        return await signals.run_until_signalled(turn, engine.drain, engine.death)


async def _turn(
    engine: Engine,
    opening: OpenRequest,
    parts: tuple[Content, ...],
    form: Format,
    lines: TurnLines | None,
    goal: GoalChanges | None,
    *,
    attended: bool,
) -> int:
    opened = await engine.open(opening)
    if opening.ref is not None:
        context.note_ambiguous(opening.ref, opened)
    text_stream, note_stream = turn_output.streams() if form == "text" else (None, None)
    services, session_id = engine.services, opened.session.id
    async with (
        Spinner("thinking") as spinner,
        stopped_worker.watch(services.database, session_id, services.worker_id, spinner.note),
    ):
        turn, items = await _submit(engine, session_id, parts, goal)
        items = turn_output.stop_spinner_at_output(items, spinner)
        if lines is not None:
            lines.begin(opened.session, turn.admission.turn_id)
            items = lines.print_items(items)
        if attended:
            items = terminal_question.ask_during(engine, session_id, items)
        outcome = await turn_output.show(
            items, text_stream=text_stream, note_stream=note_stream, to_the_end=goal is not None
        )
    if form == "text":
        if text_stream is None and outcome.text:
            render.print_text(visible(outcome.text))
    else:
        document = await turn_documents.result_document(engine, session_id, outcome)
        if goal is not None and (found := await engine.goals.get(session_id)) is not None:
            document["goal"] = GoalItem.from_goal(found)
        render.print_json(document) if lines is None else lines.end(document)
    if goal is not None and (stopped := await _goal_problem(engine, session_id)) is not None:
        if form == "text":
            context.note(f"holdfast: {stopped} (session {session_id})")
        return errors.FAILED
    return _report_status(session_id, outcome, quiet=form != "text")


async def _submit(
    engine: Engine, session_id: str, parts: tuple[Content, ...], goal: GoalChanges | None
) -> tuple[SubmittedTurn, AsyncIterator[Entry | LiveText]]:
    """Submit the message, and follow its turn; for a goal, all turns until it is over."""
    if goal is None:
        turn = await engine.submit(NewMessage(session_id, parts), stream="live")
        return turn, turn.follow()
    planned = await engine.goals.plan(session_id, text_of(parts), by=LOCAL_USER, changes=goal)
    turn = await engine.submit(NewMessage(session_id, parts, goal=planned))
    after = turn.admission.session.seq - len(turn.admission.entries)
    return turn, follow_goal(engine.watch(session_id, after=after), engine.services.database, session_id)


async def _goal_problem(engine: Engine, session_id: str) -> str | None:
    """Why the goal was not reached; None if it was."""
    goal = await engine.goals.get(session_id)
    return None if goal is None or goal.state == "done" else f"the goal is {describe_goal(goal)}"


def _report_status(session_id: str, outcome: TurnResult, *, quiet: bool) -> int:
    problem = turn_output.failure_message(outcome.ended)
    if problem is None and not outcome.unanswered:
        return errors.DONE
    problem = problem or turn_documents.not_approved(outcome)
    if not quiet:
        context.note(f"holdfast: {problem} (session {session_id})")
    return errors.INTERRUPTED if outcome.ended.outcome == "interrupted" else errors.FAILED
