"""Manual compaction between two turns, and its undo."""

from collections.abc import Awaitable, Callable, Sequence

import msgspec

from holdfast.engine.compaction.compact import Outcome, compact, delete_used_chunks
from holdfast.engine.turn.active_session import ActiveSession
from holdfast.engine.turn.loop import TurnSettings, unless_stopped, update_frame
from holdfast.model.errors import Conflict, Invalid, Unavailable
from holdfast.model.event import CompactionUndone, Event
from holdfast.store.database import Transaction
from holdfast.store.repos.input_queue import Input


class ManualCommit(msgspec.Struct, frozen=True):
    """The events to commit, and what else belongs to the same transaction."""

    events: Sequence[Event]
    also: tuple[Callable[[Transaction], object], ...] = ()
    then: Input | None = None
    """Begins a turn unless input is queued; of queued input, its first events become the first."""
    check: Callable[[Transaction], object] | None = None
    """If it raises, nothing is committed."""


Do = Callable[[ActiveSession, TurnSettings], Awaitable[ManualCommit]]
"""An action in a session without an open turn."""


def compacting(about: str) -> Do:
    async def do(active: ActiveSession, settings: TurnSettings) -> ManualCommit:
        compaction = settings.compaction
        if compaction is None:
            raise Invalid("compaction is turned off in this process")
        found: list[Outcome | None] = []

        async def work() -> None:
            found.append(
                await compact(
                    active.to_compact(settings.model_call.meter),
                    compaction,
                    update_frame(active, settings).tokens,
                    about=about,
                    manual=True,
                )
            )

        await unless_stopped(active, work())
        if not found:
            raise Conflict(f"the compaction of session {active.id} was interrupted; what was finished is kept")
        if found[0] is None:
            raise Unavailable(f"this worker is shutting down; the compaction of session {active.id} can be continued")
        return ManualCommit([found[0]], (delete_used_chunks(found[0], active.id),))

    return do


async def undoing(active: ActiveSession, settings: TurnSettings) -> ManualCommit:
    """Undo the newest compaction."""
    before = [placed.event.epoch for placed in active.context.compactions]
    if not before:
        raise Invalid(f"there is nothing to undo: the context of session {active.id} is not compacted")
    return ManualCommit([CompactionUndone(epoch=before[-2] if len(before) > 1 else 0)])
