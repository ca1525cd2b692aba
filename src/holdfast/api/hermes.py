"""The list of sessions as clients of Hermes know it. There a compaction gives a session another id; here it never does."""

from typing import Any

from holdfast.api import asked
from holdfast.api.doors import Call, session_of
from holdfast.model.session import Session
from holdfast.model.times import SECOND
from holdfast.store import sessions
from holdfast.store.database import Transaction

Json = dict[str, Any]
ITS_NAMES = {"chat": "cli", "api": "api_server"}
"""What Hermes calls the places where sessions begin; all other names are the same."""
MOST = 100_000
"""How far an offset reaches: it is counted off each time. `/v1/sessions` goes on from a cursor instead."""


async def list_(call: Call) -> Json:
    """Sessions in the shape of Hermes, newest activity first."""
    query: asked.HermesAsked = call.query
    ours = {theirs: name for name, theirs in ITS_NAMES.items()}
    filters = sessions.Filters(source=None if query.source is None else ours.get(query.source, query.source))

    def work(tx: Transaction) -> list[Session]:
        page = sessions.list_page(tx, filters, limit=min(query.offset + query.limit + 1, MOST))
        return page.sessions[query.offset :]

    found = await call.house.database.read(work)
    shown = [_session(one) for one in found[: query.limit]]
    return {
        "object": "list",
        "data": shown,
        "sessions": shown,
        "limit": query.limit,
        "offset": query.offset,
        "has_more": len(found) > query.limit,
    }


async def get(call: Call) -> Json:
    """One session in the shape of Hermes."""
    shown = _session(await session_of(call))
    return {**shown, "object": "hermes.session", "session": shown}


def _session(session: Session) -> Json:
    summary = session.summary
    return {
        "id": session.id,
        "source": ITS_NAMES.get(summary.source, summary.source),
        "user_id": None,
        "model": summary.model or None,
        "title": summary.title,
        "started_at": summary.created_at / SECOND,
        "ended_at": None if summary.ended_at is None else summary.ended_at / SECOND,
        "end_reason": summary.end_reason,
        "message_count": summary.message_count,
        "input_tokens": summary.tokens_in,
        "output_tokens": summary.tokens_out,
        "parent_session_id": summary.parent_id,
        "_lineage_root_id": session.id,
        "last_active": summary.updated_at / SECOND,
        "is_active": session.state == "running",
        "preview": summary.preview,
    }
