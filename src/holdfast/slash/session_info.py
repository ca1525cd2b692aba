"""Slash commands about the current session: title, status, model, processes."""

from typing import get_args

from holdfast.clock import format_local_time
from holdfast.engine import explain
from holdfast.engine.explain import Explanation
from holdfast.engine.spending import report
from holdfast.engine.spending.report import SessionSpending
from holdfast.model.errors import Invalid
from holdfast.model.goal import describe_goal
from holdfast.model.mode import MODE_HELP, MODES, parse_mode
from holdfast.model.price import format_money
from holdfast.model.sanitize import one_line, visible
from holdfast.model.text import counted
from holdfast.process_lookup import current_identity
from holdfast.settings import DEFAULT_MODELS
from holdfast.slash.context import CommandChoice, CommandContext, require_session
from holdfast.slash.cost import cost_text
from holdfast.slash.format import decision_line, require_match
from holdfast.store.database import Transaction
from holdfast.store.repos import session_list, sessions
from holdfast.store.repos.input_queue import InputMode

MODELS_FROM = 100
"""The sessions used last, whose models are offered."""
OUTPUT_BYTES, OUTPUT_LINES = 20_000, 40
"""How much of the output of a process is shown."""
BUSY_MODES = tuple(mode for mode in get_args(InputMode) if mode != "stop")
BUSY_HELP = {
    "queue": "is sent when the turn has ended",
    "steer": "joins the turn at its next step",
    "interrupt": "stops the turn and is sent at once",
}


async def title(context: CommandContext, rest: str) -> None:
    """Show or set the title. A title shared by several sessions refers to the most recent one."""
    session_id = require_session(context)
    database = context.engine.services.database
    if not rest:
        session = await database.read(sessions.get, session_id)
        context.show(f"Title: {session.summary.title or 'none; set one with /title TITLE'}")
        return
    session = await context.engine.actions.rename(session_id, rest)
    found = await database.read(sessions.resolve, session.summary.title or "")
    context.confirm(f"Title set to {session.summary.title!r}.")
    if found.by == "title" and found.others:
        context.show(f"! {counted(found.others, 'other session')} with this title; it refers to the most recent one.")


def _cost_line(found: SessionSpending) -> str:
    below = f", its sub-agents {cost_text(found.sub_agents)}" if found.sub_agents.calls else ""
    return f"{cost_text(found.total)}{below}"


async def status(context: CommandContext, rest: str) -> None:
    session = await context.engine.services.database.read(sessions.get, require_session(context))
    summary = session.summary
    services = context.engine.services
    spending = await report.report_session(services.database, context.engine.meter, session.id, at=services.clock.now())
    facts = [
        ("session", session.id),
        ("title", summary.title or "none"),
        ("state", session.state),
        ("model", summary.model),
        ("permission mode", f"{summary.mode} ({MODE_HELP[summary.mode]})"),
        ("messages", f"{summary.message_count} in {counted(summary.turn_count, 'turn')}, events up to {session.seq}"),
        ("epoch", str(summary.epoch)),
        ("tokens", f"{summary.tokens_in:,} in, {summary.tokens_out:,} out"),
        ("cost", _cost_line(spending)),
        ("owner", session.owner_worker or "none"),
        ("message during a turn", f"{context.busy} ({BUSY_HELP[context.busy]})"),
        ("created", format_local_time(summary.created_at)),
        ("hash", session.hash[:16]),
    ]
    goal = await context.engine.goals.get(session.id) if summary.goal else None
    facts += [("goal", f"{one_line(goal.text)[:80]} ({describe_goal(goal)})")] if goal is not None else []
    running = await context.processes()
    facts += [("processes", str(len(running)))] if running else []
    reset = await context.engine.resets.outlook(session)
    facts += [("reset", reset)] if reset else []
    facts += [
        (f"budget ({one.name})", f"{format_money(one.spent.spent)} of {format_money(one.limit)} spent")
        for one in spending.limits
    ]
    context.show("\n".join(f"{name + ':':<22} {value}" for name, value in facts))


async def why(context: CommandContext, rest: str) -> None:
    session_id, known = require_session(context), context.engine.explain

    def work(tx: Transaction) -> Explanation:
        return explain.why(tx, sessions.get(tx, session_id), known, current_identity())

    found = await context.engine.services.database.read(work)
    lines = [found.headline, f"owner: {_owner(found)}", *map(decision_line, found.decisions)]
    lines += [f"process {one.id}: {one.line}" for one in await context.processes()]
    lines += [f"reset: {found.reset}"] if found.reset else []
    mode_now = found.session.summary.mode
    lines += [f"permission mode: {mode_now} ({MODE_HELP[mode_now]})", f"terminal: {found.terminal}"]
    lines += [*found.delegation, *found.goal]
    context.show(visible("\n".join([*lines, f"next: {found.next}"])))


def _owner(found: Explanation) -> str:
    if found.owner is None or found.verdict is None:
        return "none"
    return f"{found.owner.id} ({found.owner.whereabouts}), {found.verdict.state}"


async def model(context: CommandContext, rest: str) -> None:
    current = ""
    if context.session_id is not None:
        current = (await context.engine.services.database.read(sessions.get, context.session_id)).summary.model
    shown = current or context.settings.model
    if not rest:
        rest = await _choose_model(context, shown) or ""
    if not rest:
        context.show(f"Model: {shown}. Change it with /model PROVIDER:NAME.")
    elif rest == current:
        context.show(f"The model is already {rest}.")
    elif await context.change_model(rest):
        context.confirm(f"Model changed to {rest}.")
    else:
        context.show(f"The running turn keeps {current}; later messages use {rest}.")


async def _choose_model(context: CommandContext, current: str) -> str | None:
    """Let the user choose among the models of the settings and of recent sessions."""
    page = await context.engine.services.database.read(
        session_list.list_page, session_list.SessionFilters(), limit=MODELS_FROM
    )
    settings = context.settings
    with_key = [
        DEFAULT_MODELS[name] for name, access in settings.models.items() if access.api_key and name in DEFAULT_MODELS
    ]
    used = [session.summary.model for session in page.sessions]
    names = dict.fromkeys(filter(None, (current, settings.model, *settings.fallback_models, *with_key, *used)))
    options = [CommandChoice(name, f"{name}{'  (current)' if name == current else ''}") for name in names]
    return await context.choose(f"Model: {current}. Choose another, or type /model PROVIDER:NAME.", options)


async def mode(context: CommandContext, rest: str) -> None:
    """Show or change the permission mode."""
    current = await context.permission_mode()
    if not rest:
        lines = [f"{'*' if one == current else ' '} {one:<10} {MODE_HELP[one]}" for one in MODES]
        context.show("\n".join(["Permission mode:", *lines]))
        return
    wanted = parse_mode(rest)
    if wanted == current:
        context.show(f"The permission mode is already {wanted}.")
        return
    await context.change_mode(wanted)
    context.confirm(f"Permission mode changed to {wanted}: {MODE_HELP[wanted]}.")


async def busy(context: CommandContext, rest: str) -> None:
    if rest and rest not in BUSY_MODES:
        raise Invalid(f"unknown mode {rest!r}; use {', '.join(BUSY_MODES[:-1])} or {BUSY_MODES[-1]}")
    if rest:
        context.busy = rest  # type: ignore[assignment] # it is one of the modes
    lines = [f"{'*' if mode == context.busy else ' '} {mode:<10} {BUSY_HELP[mode]}" for mode in BUSY_MODES]
    context.show("\n".join(["A message typed during a turn:", *lines]))


async def ps(context: CommandContext, rest: str) -> None:
    """List the processes of the session, or show the output of one."""
    if rest:
        await _show_output(context, await _find_process(context, rest))
        return
    everything = [] if context.engine.processes is None else await context.engine.processes.list()
    lines = [f"{one.id}  {one.line}" for one in await context.processes()]
    others = sum(one.session_id != context.session_id for one in everything)
    lines += [f"({others} more in other sessions; see 'holdfast ps')"] if others else []
    context.show("\n".join(lines) or "No background processes.")


async def _show_output(context: CommandContext, process_id: str) -> None:
    if context.follow_output(process_id):
        return
    assert context.engine.processes is not None, "a process was found"
    process = await context.engine.processes.get(process_id)
    text = await context.engine.processes.read_newest(process, OUTPUT_BYTES)
    lines = text.rstrip("\n").split("\n")[-OUTPUT_LINES:]
    context.show("\n".join(lines) if text.strip() else f"{process_id} has no output yet.")


async def kill(context: CommandContext, rest: str) -> None:
    """Stop a process of the session."""
    if not rest:
        raise Invalid("ID is missing: use /kill ID; /ps lists the processes")
    context.show(await context.kill(await _find_process(context, rest)))


async def _find_process(context: CommandContext, name: str) -> str:
    """The id of a process of the session, given by its id or a unique prefix. Raises Invalid."""
    running = [one.id for one in await context.processes()]
    return require_match(name, running, f"this session has no background process {name!r}; /ps lists them")
