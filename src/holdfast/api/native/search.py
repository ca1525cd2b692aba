"""Full-text search over all sessions."""

from holdfast.api.native import request_models
from holdfast.api.native.endpoint import EndpointCall, resolve_session
from holdfast.api.native.response_models import SearchResponse
from holdfast.interop.documents.sessions import SearchHitItem
from holdfast.store.repos import sessions
from holdfast.store.search.index import SearchScope


async def search(call: EndpointCall) -> SearchResponse:
    """Search the text of all messages, including compacted ones."""
    query: request_models.SearchRequest = call.query
    database, index = call.context.database, await call.context.search()
    session = None if query.session is None else await database.read(resolve_session, query.session)
    await index.catch_up()
    scope = SearchScope(session_id=None if session is None else session.id, trashed=session is not None)
    hits = await index.search(query.q, limit=query.limit, scope=scope, before_position=query.before)
    titles = await database.read(sessions.get_titles, {hit.session_id for hit in hits})
    more = hits[-1].position if len(hits) == query.limit else None
    return SearchResponse(query.q, [SearchHitItem.from_hit(hit, titles[hit.session_id]) for hit in hits], more)
