"""Loads the instructions of a turn: before its first model call, never in the middle of it."""

from holdfast.engine.turn.active_session import ActiveSession
from holdfast.engine.turn.memory_call import memory_owner
from holdfast.model.event import InstructionsLoaded, ModelSaid
from holdfast.model.instructions import InstructionsRequest, LoadInstructions


async def load_instructions(active: ActiveSession, load: LoadInstructions) -> None:
    """Commit what has changed in the instructions. A turn that a worker has left is continued with what it began with."""
    turn_id = active.turn.id
    if turn_id is None or _has_begun(active, turn_id):
        return
    options = active.turn.terms
    events = await load(
        InstructionsRequest(
            session_id=active.id,
            turn_id=turn_id,
            recorded=active.context.instructions,
            has_own_system=bool(options.instructions or options.system or active.context.system),
            epoch=active.context.epoch,
            memory_owner=memory_owner(active, turn_id),
            summarized_upto=active.context.upto_seq,
            topic=active.session.summary.preview,
        )
    )
    if events:
        await active.commit(events)


def _has_begun(active: ActiveSession, turn_id: str) -> bool:
    """Whether the model may have been told something in this turn that is on record."""
    return any(
        isinstance(entry.event, ModelSaid | InstructionsLoaded) and entry.event.turn_id == turn_id
        for entry in active.entries
    )
