"""The parts of an active session that compaction needs."""

from functools import partial

from holdfast.engine.compaction.compact import SessionToCompact
from holdfast.engine.compaction.summarize import ChunkStore
from holdfast.engine.spending.meter import Meter
from holdfast.engine.turn.active_session import ActiveSession
from holdfast.store.repos import summary_chunks
from holdfast.store.repos.summary_chunks import SummaryChunk


def session_to_compact(active: ActiveSession, meter: Meter | None) -> SessionToCompact:
    """The parts of the session. The calls of models are recorded by the meter."""
    database, clock = active.services.database, active.services.clock

    async def get(request: str) -> SummaryChunk | None:
        return await database.read(summary_chunks.get, active.id, request)

    async def put(request: str, chunk: SummaryChunk) -> None:
        await database.write(summary_chunks.put, active.lease, request, chunk, at=clock.now())

    turn_id, has_goal = active.turn.id or "", active.may_have_goal
    return SessionToCompact(
        active.context,
        turn_id,
        ChunkStore(get, put, active.pause.is_set),
        active.end_preparation,
        active.session.summary.mode,
        None
        if meter is None
        else partial(meter.recording, session_id=active.id, purpose="summary", turn_id=turn_id, has_goal=has_goal),
    )
