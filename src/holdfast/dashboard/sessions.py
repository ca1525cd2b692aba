"""The list of sessions: filters, search as you type, and pages that cost the same in a store of any size."""

import asyncio
from typing import cast, get_args
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard import templating
from holdfast.dashboard.context import DashboardContext, get_context
from holdfast.dashboard.display_state import read_failure
from holdfast.engine.stats import SessionStats, compute_stats
from holdfast.interop import session_tree
from holdfast.interop.session_tree import TreeNode
from holdfast.model.errors import HoldfastError, Invalid
from holdfast.model.event import Source
from holdfast.model.session import Session, State
from holdfast.store.database import Transaction
from holdfast.store.repos import dashboard_queries, delegations, session_list, workers
from holdfast.store.repos import sessions as stored
from holdfast.store.search.index import SearchHit, SearchScope

PAGE_SIZE = 50
HITS_PER_ROUND = 60
MAX_ROUNDS, ENOUGH_SESSIONS = 8, 15
"""A search reads the newest hits, a round at a time, until enough sessions match the filters or the rounds are used up."""
STATES: tuple[str, ...] = get_args(State)
SOURCES: tuple[str, ...] = get_args(Source)
INDEX_SECONDS = 0.4
"""How long a search waits for the index to catch up; an index further behind catches up in the background."""
OPEN_TURN_STATES = ("running", "asking", "interrupted")
MAX_OPEN = 300
"""Up to this many sessions with open turns are one page; more are divided into pages."""


class SearchResultRow(msgspec.Struct, frozen=True):
    """A session that matches the search, with its newest hit. A match of the name alone has no hit."""

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


class SessionListQuery(msgspec.Struct, frozen=True):
    """The query parameters of the page."""

    q: str = ""
    state: str = ""
    source: str = ""
    channel: str = ""
    pinned: str = ""
    trash: str = ""
    cursor: str = ""

    @property
    def filters(self) -> session_list.SessionFilters:
        """Raises Invalid for an unknown state or source."""
        if self.state not in ("", *STATES) or self.source not in ("", *SOURCES):
            raise Invalid("unknown state or source")
        return session_list.SessionFilters(
            source=self.source or None,
            channel=self.channel or None,
            state=cast("State", self.state) if self.state else None,
            pinned=1 if self.pinned else None,
            trashed=1 if self.trash else 0,
        )

    def url(self, **changes: str) -> str:
        """The URL of the first page with some parameters changed."""
        parameters = {**msgspec.structs.asdict(self), "cursor": "", **changes}
        encoded = urlencode({name: value for name, value in parameters.items() if value})
        return f"/?{encoded}" if encoded else "/"


async def show_sessions(request: Request) -> Response:
    context, parameters = get_context(request), request.query_params
    query = SessionListQuery(**{name: parameters.get(name, "")[:400] for name in SessionListQuery.__struct_fields__})
    results: list[SearchResultRow] = []
    page, lag, truncated = session_list.SessionPage([], None), 0, False
    children: dict[str, ShownChildren] = {}
    if query.q.strip():
        results, truncated, lag = await _search(context, query)
    else:
        page, children = await context.database.read(_read_tree, query)
    part = templating.is_partial(request)
    name = "sessions.html" if not part else "rows.html" if query.cursor else "list.html"
    return templating.page_response(
        request,
        name,
        query=query,
        page=page,
        children=children,
        results=results,
        truncated=truncated,
        lag=lag,
        states=STATES,
        sources=SOURCES,
        now=context.now,
        failures=await context.database.read(_read_failures, [*page.sessions, *(one.session for one in results)]),
    )


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


class ShownChildren(msgspec.Struct, frozen=True):
    """The rows below a session: its newest descendants, and how many more there are."""

    nodes: list[TreeNode]
    more: int


def _read_tree(tx: Transaction, query: SessionListQuery) -> tuple[session_list.SessionPage, dict[str, ShownChildren]]:
    """A page of the list, and the children of its sessions unless the list shows one source."""
    page = _read_page(tx, query)
    if query.source:
        return page, {}
    parents = delegations.map_child_ids(tx, page.sessions)
    return page, {one.id: _read_children(tx, one) for one in page.sessions if one.id in parents}


def _read_children(tx: Transaction, session: Session) -> ShownChildren:
    below = session_tree.list_descendants(tx, [session])[1:]
    return ShownChildren(below[:MAX_CHILDREN], max(0, len(below) - MAX_CHILDREN))


async def _search(context: DashboardContext, query: SessionListQuery) -> tuple[list[SearchResultRow], bool, int]:
    """The matching sessions, newest first; whether there may be more; and how many events the index is behind."""
    index = await context.search()
    context.search_used.set()
    try:
        async with asyncio.timeout(INDEX_SECONDS):
            await index.catch_up()
    except TimeoutError:
        pass  # the page shows `lag`, and the next search continues from there
    hits: list[SearchHit] = []
    results: list[SearchResultRow] = []
    truncated = False
    for _ in range(MAX_ROUNDS):
        before = hits[-1].position if hits else None
        try:
            more = await index.search(
                query.q, limit=HITS_PER_ROUND, scope=SearchScope(trashed=bool(query.trash)), before_position=before
            )
        except Invalid:  # only blanks and quotes so far
            more = []
        hits, truncated = hits + more, len(more) == HITS_PER_ROUND
        results = await context.database.read(_group_hits, query, hits)
        if len(results) >= ENOUGH_SESSIONS or not truncated:
            break
    return results, truncated, await index.lag()


def _group_hits(tx: Transaction, query: SessionListQuery, hits: list[SearchHit]) -> list[SearchResultRow]:
    results: dict[str, SearchResultRow] = {}
    if (named := _find_by_name(tx, query.q.strip(), trashed=bool(query.trash))) is not None:
        results[named.id] = SearchResultRow(named, None)
    for hit in hits:
        before = results.get(hit.session_id)
        if before is None:
            results[hit.session_id] = SearchResultRow(stored.get(tx, hit.session_id), hit, 1)
        else:
            results[hit.session_id] = SearchResultRow(before.session, before.hit or hit, before.count + 1)
    return [one for one in results.values() if session_list.matches_filters(one.session, query.filters)]


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
