"""Manual compaction between two turns, and its undo."""

from holdfast.engine.compaction.compact import CompactionOutcome, compact, could_shrink, delete_used_chunks
from holdfast.engine.turn.active_session import ActiveSession
from holdfast.engine.turn.between_turns import ActionBetweenTurns, CommitBetweenTurns
from holdfast.engine.turn.loop import TurnSettings, unless_stopped, update_frame
from holdfast.engine.turn.session_to_compact import session_to_compact
from holdfast.model.errors import Conflict, Invalid, Unavailable
from holdfast.model.event import CompactionUndone


def compacting(about: str) -> ActionBetweenTurns:
    async def do(active: ActiveSession, settings: TurnSettings) -> CommitBetweenTurns:
        compaction = settings.compaction
        if compaction is None:
            raise Invalid("compaction is turned off in this process")
        found: list[CompactionOutcome | None] = []

        async def work() -> None:
            found.append(
                await compact(
                    session_to_compact(active, settings.model_call.meter),
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
        return CommitBetweenTurns([found[0]], (delete_used_chunks(found[0], active.id),))

    return do


def is_worthwhile(active: ActiveSession, settings: TurnSettings) -> bool:
    """Whether a manual compaction would be tried now. Writes nothing."""
    if settings.compaction is None:
        return False
    return could_shrink(active.context, settings.compaction, update_frame(active, settings).tokens)


async def undoing(active: ActiveSession, settings: TurnSettings) -> CommitBetweenTurns:
    """Undo the newest compaction."""
    before = [placed.event.epoch for placed in active.context.compactions]
    if not before:
        raise Invalid(f"there is nothing to undo: the context of session {active.id} is not compacted")
    return CommitBetweenTurns([CompactionUndone(epoch=before[-2] if len(before) > 1 else 0)])
