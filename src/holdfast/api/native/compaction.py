"""The context of a session: its explanation and its compactions."""

import msgspec

from holdfast.api.errors import ApiError
from holdfast.api.native import request_models
from holdfast.api.native.endpoint import EndpointCall, load_session
from holdfast.api.native.response_models import CompactionItem, CompactionListResponse
from holdfast.engine import explain as engine_why
from holdfast.engine.context.budget import measure_fill
from holdfast.engine.explain import Explanation
from holdfast.interop.documents.explanation import ContextItem, WhyResponse, compaction_document
from holdfast.interop.serialization import Json
from holdfast.model.entry import Entry
from holdfast.model.event import Compacted, CompactionUndone
from holdfast.model.times import iso
from holdfast.process_lookup import current_identity
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions


async def explain_session(call: EndpointCall) -> WhyResponse:
    """Explain the session: its owner, what it is doing, past decisions and their evidence, and what happens next."""
    session, context = await load_session(call), call.context
    settings = context.engine.explain

    def work(tx: Transaction) -> Explanation:
        return engine_why.why(tx, sessions.get(tx, session.id), settings, current_identity())

    return WhyResponse.from_explanation(await context.database.read(work))


async def list_compactions(call: EndpointCall) -> CompactionListResponse:
    """List the compactions of the session with the events each replaced and its summary."""
    session, context = await load_session(call), call.context
    window, share = context.window(session.summary.model), context.settings.context.compact_at

    def work(tx: Transaction) -> CompactionListResponse:
        current = sessions.get(tx, session.id)
        entries = log.read_complete(tx, current)
        return CompactionListResponse(
            session_id=current.id,
            epoch=current.summary.epoch,
            context=ContextItem.from_fill(measure_fill(entries, window, share)),
            compactions=_compactions(entries),
        )

    return await context.database.read(work)


def _compactions(entries: list[Entry]) -> list[CompactionItem]:
    found: list[CompactionItem] = []
    for entry in entries:
        event = entry.event
        if isinstance(event, CompactionUndone):
            found = [msgspec.structs.replace(one, undone=one.undone or one.epoch > event.epoch) for one in found]
        elif isinstance(event, Compacted):
            found.append(
                CompactionItem(
                    seq=entry.seq,
                    at=iso(entry.at),
                    epoch=event.epoch,
                    from_seq=1 if event.upto_seq else 0,
                    upto_seq=event.upto_seq,
                    how=event.how,
                    model=event.model,
                    tokens_before=event.tokens_before,
                    tokens_after=event.tokens_after,
                    pinned=list(event.pinned),
                    summary=event.summary,
                    undone=False,
                )
            )
    return found


async def compact(call: EndpointCall) -> Json:
    """Compact the context now, or undo the last compaction. Responds when it is done."""
    body: request_models.CompactRequest = call.body
    if body.undo and body.about:
        raise ApiError(400, "invalid_value", "about cannot be combined with undo", "about")
    session, engine = await load_session(call, trashed=False), call.context.engine
    if body.undo:
        return compaction_document(session, await engine.undo_compaction(session.id))
    return compaction_document(session, await engine.compact(session.id, body.about))
