"""The list of sessions: filters, search as you type, and pages that cost the same in a store of any size."""

from collections.abc import Sequence

import msgspec
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response

from holdfast.dashboard import templating
from holdfast.dashboard.context import DashboardContext, get_context
from holdfast.dashboard.display_state import read_failure
from holdfast.dashboard.list_query import ROLES, SORTS, SOURCES, STATES, SessionListQuery
from holdfast.engine.stats import SessionStats, compute_stats
from holdfast.interop import session_tree
from holdfast.interop.session_tree import TreeNode
from holdfast.model.errors import HoldfastError, Invalid
from holdfast.model.session import Session
from holdfast.model.text import parse_decimal
from holdfast.store.database import Transaction
from holdfast.store.repos import dashboard_queries, delegations, session_list, workers
from holdfast.store.repos import sessions as stored
from holdfast.store.search import ranked_search
from holdfast.store.search.index import SearchHit, SearchScope
from holdfast.store.search.ranked_search import RankedHits
from holdfast.store.spending import usage

PAGE_SIZE = 50
NO_HITS = RankedHits([], complete=True, similar=False)
INDEX_SECONDS = 0.4
"""How long a search waits for the index to catch up; an index further behind catches up in the background."""
OPEN_TURN_STATES = ("running", "asking", "interrupted")
MAX_MODELS = 100
MAX_OPEN = 300
"""Up to this many sessions with open turns are one page; more are divided into pages."""


class SearchResultRow(msgspec.Struct, frozen=True):
    """A session that matches the search, with its best hit. A match of the name alone has no hit."""

    session: Session
    hit: SearchHit | None
    count: int = 0

    @property
    def snippet_parts(self) -> list[tuple[str, bool]]:
        """The snippet in parts, each with whether it matches."""
        parts: list[tuple[str, bool]] = []
        if self.hit is None:
            return parts
        position = 0
        for start, end in self.hit.marks:
            parts += [(self.hit.snippet[position:start], False), (self.hit.snippet[start:end], True)]
            position = end
        return [*parts, (self.hit.snippet[position:], False)]


MAX_CHILDREN = 6
"""Children that the list shows below a session; its page shows all."""


async def show_sessions(request: Request) -> Response:
    context, parameters = get_context(request), request.query_params
    query = SessionListQuery(**{name: parameters.get(name, "")[:400] for name in SessionListQuery.__struct_fields__})
    if not templating.is_partial(request):
        return await _render_sessions(request, query)

    async def render() -> bytes:
        return bytes((await _render_sessions(request, query)).body)

    return HTMLResponse(await context.responses.get(query, render))


async def _render_sessions(request: Request, query: SessionListQuery) -> Response:
    """The page, or only its list, which is the same for everybody."""
    context = get_context(request)
    results: list[SearchResultRow] = []
    lag, found = 0, NO_HITS
    if query.cost or query.sort == "cost":
        await usage.catch_up(context.database)
    if query.q.strip():
        results, found, lag = await _search(context, query)
        costs = await context.database.read(dashboard_queries.map_costs, [one.session for one in results])
        shown = ShownPage([], None, costs)
    else:
        shown = await context.database.read(read_shown_page, query)
    part = templating.is_partial(request)
    with_models = not part and query.has_folded  # otherwise the page requests them when the filters are opened
    name = "sessions.html" if not part else "rows.html" if query.cursor else "list.html"
    return templating.page_response(
        request,
        name,
        query=query,
        page=shown,
        children=shown.children,
        costs=shown.costs,
        results=results,
        found=found,
        roles=ROLES,
        lag=lag,
        states=STATES,
        sources=SOURCES,
        sorts=SORTS,
        models=await _list_models(context) if with_models else [],
        now=context.now,
        failures=await context.database.read(_read_failures, [*shown.sessions, *(one.session for one in results)]),
    )


async def show_models(request: Request) -> Response:
    """The options of the filter by model. They need a scan of all sessions, so the list does not wait for them."""
    models = await _list_models(get_context(request))
    selected = request.query_params.get("model", "")
    return templating.fragment_response(request, "models.html", models=models, selected=selected)


async def _list_models(context: DashboardContext) -> list[str]:
    return await context.database.read(dashboard_queries.list_models, limit=MAX_MODELS)


def _read_failures(tx: Transaction, listed: list[Session]) -> dict[str, str]:
    """Why the last turn of each idle session failed, if it did."""
    return {one.id: failure for one in listed if (failure := read_failure(tx, one))}


def _read_page(tx: Transaction, query: SessionListQuery) -> session_list.SessionPage:
    """A page of the list. Sessions with open turns are few, and a database index finds them."""
    if query.state in OPEN_TURN_STATES and not query.cursor:
        listed = dashboard_queries.list_unfinished(tx, limit=MAX_OPEN)
        if len(listed) < MAX_OPEN:
            return session_list.SessionPage(
                [one for one in listed if session_list.matches_filters(one, query.filters)], None
            )
    return session_list.list_page(tx, query.filters, limit=PAGE_SIZE, cursor=query.cursor or None)


def _read_sorted(tx: Transaction, query: SessionListQuery) -> "ShownPage":
    """A page of a list that needs a scan. Its cursor is the number of sessions before it."""
    start = parse_decimal(query.cursor or "0")
    if start is None:
        raise Invalid("invalid cursor; start again without a cursor")
    found = dashboard_queries.list_sorted(tx, query.sorted_query, limit=PAGE_SIZE + 1, start=start)
    shown = found[:PAGE_SIZE]
    costs = {session.id: cost for session, cost in shown}
    following = str(start + PAGE_SIZE) if len(found) > PAGE_SIZE else None
    return ShownPage([session for session, _ in shown], following, costs)


class ShownChildren(msgspec.Struct, frozen=True):
    """The rows below a session: descendants that run, else the newest, and how many more there are."""

    nodes: list[TreeNode]
    more: int


class ShownPage(msgspec.Struct, frozen=True):
    """The sessions of a page, the rows below them, and what all of them cost."""

    sessions: list[Session]
    next: str | None
    costs: dict[str, int] = {}
    children: dict[str, ShownChildren] = {}


def read_shown_page(tx: Transaction, query: SessionListQuery) -> ShownPage:
    """A page of the list. The children of its sessions are listed if the list is neither sorted nor of one source."""
    if query.needs_scan:
        return _read_sorted(tx, query)
    page = _read_page(tx, query)
    parents = {} if query.source else delegations.map_child_ids(tx, page.sessions)
    children = {
        one.id: choose_children(session_tree.list_descendants(tx, [one])[1:])
        for one in page.sessions
        if one.id in parents
    }
    below = [node.session for one in children.values() for node in one.nodes]
    costs = dashboard_queries.map_costs(tx, [*page.sessions, *below])
    return ShownPage(page.sessions, page.next, costs, children)


def choose_children(below: Sequence[TreeNode]) -> ShownChildren:
    """The descendants to show, in their order."""
    first = sorted(range(len(below)), key=lambda index: (_is_over(below[index]), -index))[:MAX_CHILDREN]
    return ShownChildren([below[index] for index in sorted(first)], len(below) - len(first))


def _is_over(node: TreeNode) -> bool:
    return node.record is None or node.record.ended_at is not None


async def _search(context: DashboardContext, query: SessionListQuery) -> tuple[list[SearchResultRow], RankedHits, int]:
    """The matching sessions, the best first; all hits; and how many events the index is behind."""
    index = await context.search()
    context.search_used.set()
    lag = await ranked_search.catch_up_within(index, INDEX_SECONDS)
    scope = SearchScope(trashed=bool(query.trash), role=query.role or None, tool=query.tool.strip() or None)
    try:
        found = await ranked_search.find(index, query.q, scope=scope)
    except Invalid:  # only blanks, quotes and accents so far
        found = NO_HITS
    return await context.database.read(_group_hits, query, found), found, lag


def _group_hits(tx: Transaction, query: SessionListQuery, found: RankedHits) -> list[SearchResultRow]:
    results: dict[str, SearchResultRow] = {}
    if (named := _find_by_name(tx, query.q.strip(), trashed=bool(query.trash))) is not None:
        results[named.id] = SearchResultRow(named, None)
    for one in found.by_session():
        results[one.session_id] = SearchResultRow(stored.get(tx, one.session_id), one.hits[0], one.count)
    return [one for one in results.values() if _matches(tx, one.session, query)]


def _matches(tx: Transaction, session: Session, query: SessionListQuery) -> bool:
    """Whether a search shows the session: a search has the filters of the list, but not its order."""
    more = query.sorted_query
    if not session_list.matches_filters(session, more.filters):
        return False
    if not more.since <= session.summary.updated_at < more.until:
        return False
    if more.failed is not None and more.failed != bool(read_failure(tx, session)):
        return False
    if more.folder and more.folder not in _folder_of(tx, session):
        return False
    return not more.min_cost or sum(one.cost for one in usage.list_of_session(tx, session.id).values()) >= more.min_cost


def _folder_of(tx: Transaction, session: Session) -> str:
    opened = stored.get_opened(tx, session.id)
    return "" if opened is None else opened.workdir or ""


def _find_by_name(tx: Transaction, ref: str, *, trashed: bool) -> Session | None:
    """The session with this id, alias or title, if there is one."""
    try:
        return stored.resolve(tx, ref, trashed=trashed).session
    except HoldfastError:
        return None


async def show_counts(request: Request) -> Response:
    """The number of sessions by state. The page requests it after the list, because it counts all sessions."""
    context = get_context(request)
    stats = await context.database.read(read_stats)
    return templating.fragment_response(request, "session_counts.html", stats=stats)


def read_stats(tx: Transaction) -> SessionStats:
    return compute_stats(session_list.count_by_kind(tx), {worker.id for worker in workers.list_alive(tx)})
