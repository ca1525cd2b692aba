"""The list of sessions: filters, search as one types, and pages that cost the same in a large store as in a small one."""

import asyncio
from typing import cast, get_args
from urllib.parse import urlencode

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from holdfast.dashboard import pages
from holdfast.dashboard.desk import Desk, of
from holdfast.engine.census import Census, take_census
from holdfast.model.errors import HoldfastError, Invalid
from holdfast.model.event import Source
from holdfast.model.session import Session, State
from holdfast.store import board, workers
from holdfast.store import sessions as stored
from holdfast.store.database import Transaction
from holdfast.store.search import Hit, Scope

LIMIT = 50
HITS = 60
ROUNDS, ENOUGH = 8, 15
"""The newest places are looked at until they are in enough sessions that fit the filters, or so many times."""
STATES: tuple[str, ...] = get_args(State)
SOURCES: tuple[str, ...] = get_args(Source)
INDEX_SECONDS = 0.4
"""How long a search waits for the newest words; an index that is far behind goes on by itself."""
OPEN_TURN = ("running", "interrupted")
OPEN = 300
"""So many open turns are shown at once; of more, a page at a time."""


class Found(msgspec.Struct, frozen=True):
    """A session in which something was found, with the newest place."""

    session: Session
    hit: Hit | None
    count: int = 0

    @property
    def marked(self) -> list[tuple[str, bool]]:
        """The snippet in pieces, and which of them were looked for."""
        pieces: list[tuple[str, bool]] = []
        if self.hit is None:
            return pieces
        place = 0
        for start, end in self.hit.marks:
            pieces += [(self.hit.snippet[place:start], False), (self.hit.snippet[start:end], True)]
            place = end
        return [*pieces, (self.hit.snippet[place:], False)]


class Asked(msgspec.Struct, frozen=True):
    """What the page was asked for."""

    q: str = ""
    state: str = ""
    source: str = ""
    channel: str = ""
    pinned: str = ""
    trash: str = ""
    cursor: str = ""

    @property
    def filters(self) -> stored.Filters:
        """Raises Invalid for a state or a source that there is none of."""
        if self.state not in ("", *STATES) or self.source not in ("", *SOURCES):
            raise Invalid("there is no such state or source")
        return stored.Filters(
            source=self.source or None,
            channel=self.channel or None,
            state=cast("State", self.state) if self.state else None,
            pinned=1 if self.pinned else None,
            trashed=1 if self.trash else 0,
        )

    def address(self, **changes: str) -> str:
        """The page with some things asked for otherwise."""
        asked = {**msgspec.structs.asdict(self), "cursor": "", **changes}
        query = urlencode({name: value for name, value in asked.items() if value})
        return f"/?{query}" if query else "/"


async def sessions(request: Request) -> Response:
    desk, given = of(request), request.query_params
    asked = Asked(**{name: given.get(name, "")[:400] for name in Asked.__struct_fields__})
    found: list[Found] = []
    page, lag, cut = stored.Page([], None), 0, False
    if asked.q.strip():
        found, cut, lag = await _search(desk, asked)
    else:
        page = await desk.database.read(_page, asked)
    part = pages.is_part(request)
    name = "sessions.html" if not part else "rows.html" if asked.cursor else "list.html"
    return pages.page(
        request,
        name,
        asked=asked,
        page=page,
        found=found,
        cut=cut,
        lag=lag,
        states=STATES,
        sources=SOURCES,
        now=desk.now,
    )


def _page(tx: Transaction, asked: Asked) -> stored.Page:
    """A page of the list. Running and interrupted sessions are few, and found without a look at all the others."""
    if asked.state in OPEN_TURN and not asked.cursor:
        every = board.unfinished(tx, limit=OPEN)
        if len(every) < OPEN:
            return stored.Page([one for one in every if stored.fits(one, asked.filters)], None)
    return stored.list_page(tx, asked.filters, limit=LIMIT, cursor=asked.cursor or None)


async def _search(desk: Desk, asked: Asked) -> tuple[list[Found], bool, int]:
    """Sessions in which the words stand, the newest first; whether there may be more; and how far behind the index is."""
    index = await desk.search()
    desk.searched.set()
    try:
        async with asyncio.timeout(INDEX_SECONDS):
            await index.catch_up()
    except TimeoutError:
        pass  # `lag` says so on the page, and the next search goes on from there
    hits: list[Hit] = []
    found: list[Found] = []
    cut = False
    for _ in range(ROUNDS):
        before = hits[-1].position if hits else None
        try:
            more = await index.search(
                asked.q, limit=HITS, scope=Scope(trashed=bool(asked.trash)), before_position=before
            )
        except Invalid:  # nothing but blanks and quotes yet
            more = []
        hits, cut = hits + more, len(more) == HITS
        found = await desk.database.read(_grouped, asked, hits)
        if len(found) >= ENOUGH or not cut:
            break
    return found, cut, await index.lag()


def _grouped(tx: Transaction, asked: Asked, hits: list[Hit]) -> list[Found]:
    found: dict[str, Found] = {}
    if (named := _named(tx, asked.q.strip(), trashed=bool(asked.trash))) is not None:
        found[named.id] = Found(named, None)
    for hit in hits:
        before = found.get(hit.session_id)
        if before is None:
            found[hit.session_id] = Found(stored.get(tx, hit.session_id), hit, 1)
        else:
            found[hit.session_id] = Found(before.session, before.hit or hit, before.count + 1)
    return [one for one in found.values() if stored.fits(one.session, asked.filters)]


def _named(tx: Transaction, ref: str, *, trashed: bool) -> Session | None:
    """The session whose id, alias or title this is, if it is one."""
    try:
        return stored.resolve(tx, ref, trashed=trashed).session
    except HoldfastError:
        return None


async def counts(request: Request) -> Response:
    """How many sessions there are: asked for after the list, because it looks at them all."""
    desk = of(request)
    census = await desk.database.read(take)
    return pages.piece(request, "census.html", census=census)


def take(tx: Transaction) -> Census:
    return take_census(stored.stats(tx), {worker.id for worker in workers.alive(tx)})
