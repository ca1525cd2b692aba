"""Slash commands that switch, fork or close sessions."""

from collections.abc import Sequence

from holdfast.clock import format_local_time
from holdfast.engine.reset.reset import Leaving
from holdfast.model.errors import Invalid
from holdfast.model.session import Session, messages, standing
from holdfast.model.text import counted
from holdfast.slash import session_choices
from holdfast.slash.context import CommandChoice, CommandContext, RunningProcess, require_session
from holdfast.slash.format import message_lines, parse_number
from holdfast.store.repos import sessions, workers

PREVIEWED = 6
PROCESS_ACTIONS: dict[str, Leaving] = {"stop": "stop", "keep": "keep", "move": "hand_over"}
PROCESS_CHOICES = {
    "stop": "stop: stop the processes",
    "keep": "keep: keep them running in the old session",
    "move": "move: keep them running in the new session",
}
"""What to do with running processes when a new session starts; also accepted as an argument, as in /new stop."""


async def new(context: CommandContext, rest: str) -> None:
    """End the current session; the next message starts another. Asks what to do with running processes."""
    running = await context.processes()
    word, _, title = rest.partition(" ")
    if running:
        action = PROCESS_ACTIONS.get(word)
        if action is None:
            title, action = rest, await _ask_about_processes(context, running)
        if action is not None:
            await _start_new(context, action, title)
        return
    title = rest
    await context.switch_session(None, title=sessions.clean_title(title) if title else None)
    context.show("Your next message starts a new session.")


async def _ask_about_processes(context: CommandContext, running: Sequence[RunningProcess]) -> Leaving | None:
    """Ask what to do with the processes; None if nothing was chosen, and then no new session starts."""
    listed = "\n".join(f"  {one.id}  {one.line}" for one in running)
    options = [CommandChoice(word, label) for word, label in PROCESS_CHOICES.items()]
    running_now = f"{len(running)} background process{'es are' if len(running) > 1 else ' is'} running"
    chosen = await context.choose(f"{running_now}. Stop, keep or move?\n{listed}", options)
    if chosen is None:
        choices = ", ".join(f"/new {word}" for word in PROCESS_CHOICES)
        context.show(f"Cancelled; you are still in this session. {running_now}:\n{listed}\nUse one of {choices}.")
    return PROCESS_ACTIONS.get(chosen or "")


async def _start_new(context: CommandContext, action: Leaving, title: str) -> None:
    renewed = await context.engine.resets.replace(require_session(context), action)
    if title:
        await context.engine.actions.rename(renewed.id, title)
    await context.switch_session(renewed.id)
    context.show("This is a new session. /undo-reset returns to the previous one (within a day).")


async def undo_reset(context: CommandContext, rest: str) -> None:
    """Return to the session before the last reset."""
    left = require_session(context)
    previous = await context.engine.resets.undo(left)
    await context.switch_session(previous.id)
    context.show(f"Back in session {previous.id}. The messages since the reset are kept in {left}.")


async def resume(context: CommandContext, rest: str) -> None:
    """Resume another session, named or chosen from a list. Refuses during a turn before it asks."""
    await context.require_idle()
    ref = rest or await _chosen(context)
    if ref is None:
        return
    found = await context.engine.services.database.read(sessions.resolve, ref)
    if found.session.id == context.session_id:
        context.show("You are already in this session.")
        return
    if found.others:
        context.show(f"Several sessions are titled {ref!r}; using the most recent one.")
    await context.switch_session(found.session.id)


async def _chosen(context: CommandContext) -> str | None:
    offered = await context.engine.services.database.read(
        session_choices.load, context.workdir, context.engine.services.clock.now(), current=context.session_id
    )
    if not offered:
        context.show("There are no other sessions.")
        return None

    async def preview(session_id: str) -> str:
        session, entries = await context.engine.read(session_id)
        return "\n\n".join([_head(session), *map(message_lines, messages(standing(entries))[-PREVIEWED:])])

    chosen = await context.choose("Choose a session:", offered, preview)
    if chosen is None:
        context.show("Cancelled. /resume REF resumes a session by id, id prefix or title.")
    return chosen


def _head(session: Session) -> str:
    summary = session.summary
    return f"{summary.title or session.id} · {summary.model} · {counted(summary.message_count, 'message')}, verified"


async def fork(context: CommandContext, rest: str) -> None:
    """Continue in a copy of the session, from any event. Refuses during a turn before it copies."""
    session_id = require_session(context)
    at_seq = parse_number(rest, "an event number", 0) or None
    await context.require_idle()
    forked = await context.engine.actions.fork(session_id, at_seq=at_seq, source="chat")
    await context.switch_session(forked.id)
    context.show(f"This is a copy of {session_id}, which is unchanged. Go back with /resume {session_id}.")


async def takeover(context: CommandContext, rest: str) -> None:
    """Take over the session: at once if the other terminal is gone, otherwise if the user there agrees."""
    session_id = require_session(context)
    if await context.engine.owned.keep(session_id):
        context.show("This terminal owns the session.")
        return
    database = context.engine.services.database
    session = await database.read(sessions.get, session_id)
    owner = await database.read(workers.get, session.owner_worker or "")
    if owner is None:
        raise Invalid("another terminal has just taken over the session; try again")
    await context.engine.owned.ask_for(session_id)
    since = f"{owner.whereabouts}, since {format_local_time(owner.started_at)}"
    context.show(f"The session is open in {owner.id} ({since}). Asked that terminal to hand it over.")


async def quit_(context: CommandContext, rest: str) -> None:
    context.quit()
