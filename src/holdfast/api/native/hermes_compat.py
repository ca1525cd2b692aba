"""The session list in the format of Hermes. In Hermes a compaction changes a session's id; here it never does."""

import msgspec

from holdfast.api.native import request_models
from holdfast.api.native.endpoint import EndpointCall, load_session
from holdfast.api.native.response_models import HermesSessionItem, HermesSessionList, HermesSessionResponse
from holdfast.model.session import Session
from holdfast.model.times import SECOND
from holdfast.store.database import Transaction
from holdfast.store.repos import session_list

SOURCE_NAMES = {"chat": "cli", "api": "api_server"}
"""Source names that differ in Hermes."""
MAX_OFFSET = 100_000
"""Limit of an offset, which is counted from the start each time. `/v1/sessions` uses a cursor instead."""


async def list_(call: EndpointCall) -> HermesSessionList:
    """List sessions in the format of Hermes, newest activity first."""
    query: request_models.HermesListRequest = call.query
    ours = {theirs: name for name, theirs in SOURCE_NAMES.items()}
    filters = session_list.SessionFilters(source=None if query.source is None else ours.get(query.source, query.source))

    def work(tx: Transaction) -> list[Session]:
        page = session_list.list_page(tx, filters, limit=min(query.offset + query.limit + 1, MAX_OFFSET))
        return page.sessions[query.offset :]

    found = await call.context.database.read(work)
    shown = [_session(one) for one in found[: query.limit]]
    return HermesSessionList(
        object="list",
        data=shown,
        sessions=shown,
        limit=query.limit,
        offset=query.offset,
        has_more=len(found) > query.limit,
    )


async def get(call: EndpointCall) -> HermesSessionResponse:
    """Get a session in the format of Hermes."""
    shown = _session(await load_session(call))
    return HermesSessionResponse(**msgspec.structs.asdict(shown), object="hermes.session", session=shown)


def _session(session: Session) -> HermesSessionItem:
    summary = session.summary
    return HermesSessionItem(
        id=session.id,
        source=SOURCE_NAMES.get(summary.source, summary.source),
        user_id=None,
        model=summary.model or None,
        title=summary.title,
        started_at=summary.created_at / SECOND,
        ended_at=None if summary.ended_at is None else summary.ended_at / SECOND,
        end_reason=summary.end_reason,
        message_count=summary.message_count,
        input_tokens=summary.tokens_in,
        output_tokens=summary.tokens_out,
        parent_session_id=summary.parent_id,
        lineage_root_id=session.id,
        last_active=summary.updated_at / SECOND,
        is_active=session.state in ("running", "asking"),
        preview=summary.preview,
    )
