"""Full-text search over all sessions."""

from holdfast.api.native import request_models
from holdfast.api.native.endpoint import EndpointCall, resolve_session
from holdfast.interop.documents.search import SearchResponse
from holdfast.store.repos import sessions
from holdfast.store.search import ranked_search
from holdfast.store.search.index import SearchScope

INDEX_SECONDS = 5.0
"""How long a search waits for the index to catch up. An index that is built anew takes longer in a large store."""


async def search(call: EndpointCall) -> SearchResponse:
    """Search the text of all messages, including compacted ones."""
    query: request_models.SearchRequest = call.query
    database, index = call.context.database, await call.context.search()
    session = None if query.session is None else await database.read(resolve_session, query.session)
    pending = await ranked_search.catch_up_within(index, INDEX_SECONDS)
    scope = SearchScope(
        session_id=None if session is None else session.id,
        trashed=session is not None,
        role=query.role,
        tool=query.tool,
    )
    if query.order == "recent":
        hits = await index.search(query.q, limit=query.limit, scope=scope, before_position=query.before)
        titles = await database.read(sessions.get_titles, {hit.session_id for hit in hits})
        return SearchResponse.recent(query.q, hits, titles, query.limit, pending)
    found = await ranked_search.find(index, query.q, scope=scope)
    titles = await database.read(sessions.get_titles, {hit.session_id for hit in found.hits})
    start = query.before or 0  # how many hits the pages before this one had
    return SearchResponse.ranked(query.q, found, titles, range(start, start + query.limit), pending)
