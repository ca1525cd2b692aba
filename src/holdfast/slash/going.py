"""Commands that lead elsewhere: to another session, to a copy of this one, or out."""

from collections.abc import Sequence

from holdfast.engine.reset import Leaving
from holdfast.model.counted import counted
from holdfast.model.errors import Invalid
from holdfast.model.session import Session, messages, standing
from holdfast.slash.lines import day, message_lines, number, session_line
from holdfast.slash.seat import Option, Running, Seat, session_of
from holdfast.store import sessions, workers

OFFERED = 500
"""Sessions the picker offers, the newest first; older ones are found with /search."""
PREVIEWED = 6
LEAVING: dict[str, Leaving] = {"stop": "stop", "keep": "keep", "move": "hand_over"}
LEFT = {
    "stop": "stop: end them",
    "keep": "keep: they go on, and belong to the session before",
    "move": "move: they go on, and belong to the new session",
}
"""What can become of processes when another session is begun: also typed, as in /new stop."""


async def new(seat: Seat, rest: str) -> None:
    """End the current session; the next words begin another. With processes running, the person says what becomes of them."""
    running = await seat.processes()
    word, _, title = rest.partition(" ")
    leaving = LEAVING.get(word) if running else None
    if leaving is None:
        title = rest
        leaving = await _leaving(seat, running) if running else None
    if leaving is not None:
        await _begin_anew(seat, leaving, title)
        return
    await seat.move(None, title=sessions.clean_title(title) if title else None)
    seat.tell("A new session begins with your next words.")


async def _leaving(seat: Seat, running: Sequence[Running]) -> Leaving | None:
    """What becomes of the processes; None if nothing was chosen: then they go on, and that is said."""
    listed = "\n".join(f"  {one.id}  {one.line}" for one in running)
    options = [Option(word, label) for word, label in LEFT.items()]
    chosen = await seat.choose(f"{len(running)} background processes run. What becomes of them?\n{listed}", options)
    if chosen is None:
        seat.tell(f"! {len(running)} background processes go on; /kill ID ends one:\n{listed}")
    return LEAVING.get(chosen or "")


async def _begin_anew(seat: Seat, leaving: Leaving, title: str) -> None:
    renewed = await seat.engine.begin_anew(session_of(seat), leaving)
    if title:
        at = seat.engine.ground.clock.now()
        await seat.engine.ground.database.write(sessions.rename, renewed.id, title, at=at)
    await seat.move(renewed.id)
    seat.tell("This is a new session; /undo-reset goes back to the one before, for a day.")


async def undo_reset(seat: Seat, rest: str) -> None:
    """Go back to the session that was here before a reset."""
    left = session_of(seat)
    previous = await seat.engine.undo_reset(left)
    await seat.move(previous.id)
    seat.tell(f"{previous.id} goes on, with all its messages. What was said since is kept as {left}.")


async def resume(seat: Seat, rest: str) -> None:
    """Take up another session, named or chosen from a list. During a turn nobody is made to choose in vain."""
    await seat.refuse_busy()
    ref = rest or await _chosen(seat)
    if ref is None:
        return
    found = await seat.engine.ground.database.read(sessions.resolve, ref)
    if found.session.id == seat.session_id:
        seat.tell("You are in this session already.")
        return
    if found.others:
        seat.tell(f"Several sessions are titled {ref!r}; this is the one used last.")
    await seat.move(found.session.id)


async def _chosen(seat: Seat) -> str | None:
    page = await seat.engine.ground.database.read(sessions.list_page, sessions.Filters(), limit=OFFERED)
    offered = [Option(one.id, session_line(one)) for one in page.sessions if one.id != seat.session_id]
    if not offered:
        seat.tell("There is no other session.")
        return None

    async def preview(session_id: str) -> str:
        session, entries = await seat.engine.read(session_id)
        return "\n\n".join([_head(session), *map(message_lines, messages(standing(entries))[-PREVIEWED:])])

    chosen = await seat.choose("Which session?", offered, preview)
    if chosen is None:
        seat.tell("Nothing was chosen. /resume REF takes a session by its id, the beginning of one, or its title.")
    return chosen


def _head(session: Session) -> str:
    summary = session.summary
    return f"{summary.title or session.id} · {summary.model} · {counted(summary.message_count, 'message')}, all of them here"


async def fork(seat: Seat, rest: str) -> None:
    """Go on in a copy, from any event on. A turn that runs is in the way before anything is copied."""
    session_id = session_of(seat)
    at_seq = number(rest, "the number of an event", 0) or None
    await seat.refuse_busy()
    forked = await seat.engine.fork(session_id, at_seq=at_seq, source="chat")
    await seat.move(forked.id)
    seat.tell(f"This is a copy of {session_id}, which stays as it was; /resume {session_id} goes back.")


async def takeover(seat: Seat, rest: str) -> None:
    """Own the session: when the other terminal is gone at once, else when the person there agrees."""
    session_id = session_of(seat)
    if await seat.engine.owned.keep(session_id):
        seat.tell("This terminal has the session open.")
        return
    database = seat.engine.ground.database
    session = await database.read(sessions.get, session_id)
    owner = await database.read(workers.get, session.owner_worker or "")
    if owner is None:
        raise Invalid("somebody else has just taken it; try again")
    await seat.engine.owned.ask_for(session_id)
    since = f"{owner.whereabouts}, since {day(owner.started_at)}"
    seat.tell(f"The session is open in {owner.id} ({since}). The person there is asked to hand it over.")


async def quit_(seat: Seat, rest: str) -> None:
    seat.leave()
