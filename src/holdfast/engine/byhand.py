"""Compaction that a person asks for between two turns, and its undoing."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from holdfast.engine.compact import Outcome, compact, tidy_up
from holdfast.engine.hand import Hand
from holdfast.engine.turn import Playing, frame, unless_stopped
from holdfast.model.errors import Conflict, Invalid, Unavailable
from holdfast.model.event import CompactionUndone, Event
from holdfast.store.database import Transaction


class Deed(msgspec.Struct, frozen=True):
    """What is to be committed, and what else belongs into the same transaction."""

    events: Sequence[Event]
    also: tuple[Callable[[Transaction], object], ...] = ()


Do = Callable[[Hand, Playing], Awaitable[Deed]]
"""Something to be done in a session that one holds while no turn is open."""


def compacting(about: str) -> Do:
    async def do(hand: Hand, playing: Playing) -> Deed:
        kit = playing.compacting
        if kit is None:
            raise Invalid("this program never compacts a context")
        found: list[Outcome | None] = []

        async def work() -> None:
            found.append(await compact(hand, kit, frame(hand, playing).tokens, about=about, by_hand=True))

        await unless_stopped(hand, work())
        if not found:
            raise Conflict(f"the compaction of session {hand.id} was interrupted; what was finished is kept")
        if found[0] is None:
            raise Unavailable(f"this worker is leaving; the compaction of session {hand.id} can be gone on with")
        return Deed([found[0]], (tidy_up(found[0], hand.id),))

    return do


async def undoing(hand: Hand, playing: Playing) -> Deed:
    """Show again what was shown before the newest compaction."""
    before = [placed.event.epoch for placed in hand.context.compactions]
    if not before:
        raise Invalid(f"there is nothing to undo: the context of session {hand.id} is not compacted")
    return Deed([CompactionUndone(epoch=before[-2] if len(before) > 1 else 0)])
