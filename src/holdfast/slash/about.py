"""Commands about the session as it is: its name, state, model, processes, and what can be typed."""

from typing import get_args

from holdfast.engine.why import Why, explain, owner_of
from holdfast.identity import identity
from holdfast.interop.visible import visible
from holdfast.model.counted import counted
from holdfast.model.errors import Invalid
from holdfast.slash.lines import day
from holdfast.slash.seat import Seat, session_of
from holdfast.store import approvals, log, sessions
from holdfast.store.database import Transaction
from holdfast.store.inputs import Mode

MODES = tuple(mode for mode in get_args(Mode) if mode != "stop")
MEANING = {
    "queue": "they wait for their own turn",
    "steer": "they join the turn that runs, at its next step",
    "interrupt": "they end the turn that runs, and are answered at once",
}


async def title(seat: Seat, rest: str) -> None:
    """Show the title, or give one. Several sessions may have the same: then the one used last is meant by it."""
    session_id = session_of(seat)
    database = seat.engine.ground.database
    if not rest:
        session = await database.read(sessions.get, session_id)
        seat.tell(f"Title: {session.summary.title or '(none yet; /title TITLE gives one)'}")
        return
    now = seat.engine.ground.clock.now()
    session = await database.write(sessions.rename, session_id, rest, at=now)
    found = await database.read(sessions.resolve, session.summary.title or "")
    seat.confirm(f"Titled {session.summary.title!r}.")
    if found.by == "title" and found.others:
        seat.tell(f"! {found.others} other sessions have this title, too: it means the one used last.")


async def status(seat: Seat, rest: str) -> None:
    session = await seat.engine.ground.database.read(sessions.get, session_of(seat))
    summary = session.summary
    facts = [
        ("session", session.id),
        ("title", summary.title or "none yet"),
        ("state", session.state),
        ("model", summary.model),
        ("messages", f"{summary.message_count} in {counted(summary.turn_count, 'turn')}, events up to {session.seq}"),
        ("epoch", str(summary.epoch)),
        ("tokens", f"{summary.tokens_in:,} in, {summary.tokens_out:,} out"),
        ("open in", session.owner_worker or "nobody"),
        ("words during a turn", f"{seat.busy}: {MEANING[seat.busy]}"),
        ("begun", day(summary.created_at)),
        ("proof", session.hash[:16]),
    ]
    running = await seat.processes()
    facts += [("processes", str(len(running)))] if running else []
    reset = await seat.engine.resets.outlook(session)
    facts += [("reset", reset)] if reset else []
    seat.tell("\n".join(f"{name + ':':<20} {value}" for name, value in facts))


async def why(seat: Seat, rest: str) -> None:
    found = await seat.engine.ground.database.read(_why, session_of(seat), seat.settings.api.idle_minutes)
    session = found.session
    lines = [f"{session.id} is {session.state}: {found.doing}", f"open in: {_owner(found)}"]
    for decision in found.decisions:
        evidence = f" ({decision.evidence})" if decision.evidence else ""
        lines.append(f"{day(decision.at)}  [{decision.seq}] {decision.what}{evidence}")
    lines += [f"process {one.id}: {one.line}" for one in await seat.processes()]
    reset = await seat.engine.resets.outlook(session)
    lines += [f"reset: {reset}"] if reset else []
    seat.tell(visible("\n".join([*lines, f"next: {found.next}"])))


def _why(tx: Transaction, session_id: str, idle_minutes: int) -> Why:
    session = sessions.get(tx, session_id)
    owner, verdict = owner_of(tx, session, identity())
    questions = approvals.unanswered(tx, session.id)
    return explain(session, log.read_whole(tx, session), owner, verdict, questions, idle_minutes=idle_minutes)


def _owner(found: Why) -> str:
    if found.owner is None or found.verdict is None:
        return "nobody"
    return f"{found.owner.id} ({found.owner.whereabouts}), {found.verdict.state}"


async def model(seat: Seat, rest: str) -> None:
    current = ""
    if seat.session_id is not None:
        current = (await seat.engine.ground.database.read(sessions.get, seat.session_id)).summary.model
    if not rest:
        seat.tell(f"Model: {current or seat.settings.model}. /model PROVIDER:NAME changes it.")
    elif rest == current:
        seat.tell(f"The model is {rest} already.")
    else:
        await seat.change_model(rest)
        seat.confirm(f"The model is {rest} from now on.")


async def busy(seat: Seat, rest: str) -> None:
    if rest and rest not in MODES:
        raise Invalid(f"words during a turn can {', '.join(MODES[:-1])} or {MODES[-1]}, not {rest!r}")
    if rest:
        seat.busy = rest  # type: ignore[assignment] # it is one of the modes
    lines = [f"{'*' if mode == seat.busy else ' '} {mode:<10} {MEANING[mode]}" for mode in MODES]
    seat.tell("\n".join(["Words typed during a turn:", *lines]))


async def ps(seat: Seat, rest: str) -> None:
    everything = [] if seat.engine.processes is None else await seat.engine.processes.list()
    lines = [f"{one.id}  {one.line}" for one in await seat.processes()]
    others = sum(one.session_id != seat.session_id for one in everything)
    lines += [f"({others} more of other sessions; 'holdfast ps' shows them)"] if others else []
    seat.tell("\n".join(lines) or "No background processes.")


async def kill(seat: Seat, rest: str) -> None:
    running = {one.id for one in await seat.processes()}
    if not rest:
        raise Invalid("say which: /kill ID; /ps lists them")
    if rest not in running:
        raise Invalid(f"this session has no background process {rest!r}; /ps lists them")
    seat.tell(await seat.kill(rest))


async def help_(seat: Seat, rest: str) -> None:
    """Read off the registry, so that it can name nothing that does not exist."""
    from holdfast.slash import registry

    if rest:
        command = registry.find(rest.lstrip("/").lower())
        also = f" (also {', '.join('/' + alias for alias in command.aliases)})" if command.aliases else ""
        seat.tell(f"{f'/{command.name} {command.usage}'.strip()}{also}: {command.help}")
        return
    wide = max(len(f"{command.name} {command.usage}") for command in registry.COMMANDS) + 2
    lines = [f"/{f'{command.name} {command.usage}':<{wide}} {command.help}" for command in registry.COMMANDS]
    seat.tell("\n".join(lines))
