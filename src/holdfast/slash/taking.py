"""Commands that change what counts. The log keeps everything: each of them is an event in it."""

from holdfast.interop.visible import one_line
from holdfast.model.counted import counted
from holdfast.model.event import CompactionFailed
from holdfast.model.message import text_of
from holdfast.slash.lines import number
from holdfast.slash.seat import Seat, session_of

SHOWN = 60


async def undo(seat: Seat, rest: str) -> None:
    """Take back the newest exchanges."""
    taken = await seat.engine.rewind(session_of(seat), count=number(rest, "a number of exchanges", 1))
    words = one_line(text_of(taken.parts))
    short = words if len(words) <= SHOWN else words[:SHOWN] + "…"
    seat.tell(f"Taken back: {counted(taken.messages, 'message')}, from “{short}” on.")


async def retry(seat: Seat, rest: str) -> None:
    """Ask the same again, as if the last reply had not been given."""
    back = await seat.engine.look_back(session_of(seat), why="retry")
    await seat.say(back.parts, instead=back)


async def stop(seat: Seat, rest: str) -> None:
    """End the turn that runs; what was said stays."""
    stopped = await seat.engine.interrupt(session_of(seat))
    seat.tell("The turn is being ended." if stopped else "No turn runs.")


async def compact(seat: Seat, rest: str) -> None:
    """Shorten the context now, with an eye on what the person says matters most; `undo` takes the last one back."""
    session_id = session_of(seat)
    if rest == "undo":
        undone = await seat.engine.undo_compaction(session_id)
        seat.confirm(f"The compaction was undone; the epoch is {undone.epoch} again.")
        return
    seat.tell("Compacting …")
    event = await seat.engine.compact(session_id, rest)
    if isinstance(event, CompactionFailed):
        seat.confirm(f"! it could not be compacted: {event.reason}")
        return
    before, after = f"{event.tokens_before:,}", f"{event.tokens_after:,}"
    seat.confirm(f"Compacted from about {before} to {after} tokens; the log stays whole. /compact undo takes it back.")
