"""Full-text search over all events: finds what grep finds, in every script.

The index is a separate file beside a SQLite store (`fts_file`) and a table in a PostgreSQL store (`postgres.search`). It is
derived from the log: no write waits for it, and if it is lost it is rebuilt from the log. It returns candidates, newest
first; each is then read from the store and compared with the query, so every hit is a real match that exists. Events that
are not indexed yet are not found: call `catch_up` before a search that must be complete.
"""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any, ParamSpec, Protocol, TypeVar, cast

import msgspec

from holdfast.model.entry import decode
from holdfast.model.errors import Corrupt, HoldfastError, Invalid, IoFailed, Unavailable
from holdfast.model.search_text import ROLE, TOOL, searchable, searched_as
from holdfast.store.database import Database, Transaction, Value
from holdfast.store.repos import meta, sessions
from holdfast.store.search.folding import fold
from holdfast.store.search.fts_file import BUSY_SECONDS, IndexDamaged, IndexedText, IndexState, SearchFile
from holdfast.store.search.hit_ranking import relevance
from holdfast.store.search.snippet import Span, snippet
from holdfast.store.search.trigrams import SearchTerm, matches_all, parse_query
from holdfast.supervisor import Completed, ignore_cycle

P = ParamSpec("P")
T = TypeVar("T")
Progress = Callable[[int, int], None]
log = logging.getLogger(__name__)

BATCH_EVENTS = 1_000
BATCH_LETTERS = 4_000_000
"""The approximate size of one indexing step: large enough for a commit, small enough that searches do not wait long."""
FIRST_PAGE = 64
LAST_PAGE = 4_096
"""Candidates per page. Each page is twice as large as the previous one: most searches end with the first."""
SLICE = 256
"""Candidates compared per read, so that no snapshot of the store is held for long."""
FOLLOW_SECONDS = 2.0
ATTEMPTS = 3
"""How often a damaged index is replaced before the search fails."""
NEWEST = 2**62


class SearchHit(msgspec.Struct, frozen=True):
    """An event that matches. `marks` are the positions of the terms in the snippet, as (start, end) pairs in order."""

    session_id: str
    seq: int
    at: int
    kind: str
    position: int
    snippet: str
    marks: tuple[Span, ...]
    relevance: float = 0.0
    """How well it matches; only compared with that of other hits of the same query."""


class SearchScope(msgspec.Struct, frozen=True, kw_only=True):
    """Which sessions to search, and which of their events.

    Sessions in the trash and side sessions are excluded unless requested or named. `role` is `user`, `assistant` or
    `tool`; `tool` is the name of a tool, for its results and for the replies that call it.
    """

    session_id: str | None = None
    trashed: bool = False
    sides: bool = False
    role: str | None = None
    tool: str | None = None

    @property
    def marks(self) -> tuple[str, ...]:
        """The marks that an event must have."""
        wanted = ((ROLE, self.role), (TOOL, self.tool))
        return tuple(prefix + name for prefix, name in wanted if name is not None)

    def has(self, marks: Sequence[str]) -> bool:
        """Whether an event with these marks is to be searched."""
        return all(mark in marks for mark in self.marks)


class CollectedHits(msgspec.Struct, frozen=True):
    """Hits, newest first, and whether there are no older ones."""

    hits: list[SearchHit]
    complete: bool


EVERYWHERE = SearchScope()


class _Batch(msgspec.Struct, frozen=True):
    """Events that follow a state of the index, and the state of an index that has them."""

    pieces: list[IndexedText]
    after: IndexState


class IndexPort(Protocol):
    """The storage of an index. All methods block, are for one thread, and raise IndexDamaged if it was replaced by a new one."""

    opened: int
    """The number of indexes opened so far."""

    @property
    def location(self) -> str:
        """The location, for messages."""

    def state(self) -> IndexState | None:
        """How far the store is indexed; None if the index is new."""

    def begin(self, store_id: str) -> IndexState:
        """Bind a new index to this store; returns the state of the index."""

    def add(self, pieces: Sequence[IndexedText], before: IndexState, after: IndexState) -> bool:
        """Index these events, which lead from one state to the next; False if another process was faster."""

    def forget(self, positions: Sequence[int]) -> None:
        """Remove events that the store no longer has."""

    def plan(self, wanted: Sequence[SearchTerm], session_id: str | None, marks: Sequence[str] = ()) -> Any | None:
        """The query for the terms in events with these marks; None if no event can match."""

    def candidates(self, plan: Any, *, before: int, count: int) -> list[int]:
        """Positions of events that may match, newest first. All that match are among them."""

    def renew(self) -> None:
        """Replace the index with a new, empty one."""

    def close(self) -> None:
        """Close the index."""


class SearchIndex:
    """The index of one store; open it with `open_index`. All methods may be called from many tasks at once."""

    def __init__(self, index: IndexPort, database: Database) -> None:
        self._file = index
        self._database = database
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-search")
        self._closed = False
        self._reached = 0

    async def search(
        self, query: str, *, limit: int = 20, scope: SearchScope = EVERYWHERE, before_position: int | None = None
    ) -> list[SearchHit]:
        """The newest events that contain every word of the query; a quoted phrase counts as one word, blanks included.

        For the next page, pass the position of the last hit. The result is complete up to the indexed position (`lag`). A
        new or damaged index is built first. Raises Invalid for an empty query.
        """
        wanted = parse_query(query)
        if limit < 1:
            raise Invalid(f"a search needs a limit of at least 1, not {limit}")
        before = NEWEST if before_position is None else before_position
        return (await self.collect(wanted, scope, limit, before=before)).hits

    async def collect(
        self, wanted: Sequence[SearchTerm], scope: SearchScope, limit: int, *, before: int = NEWEST, most: int = NEWEST
    ) -> CollectedHits:
        """The newest `limit` events that contain the terms, among at most about `most` candidates of the index."""
        return await self._with_replacement(partial(self._search, wanted, scope, limit, before, most))

    async def catch_up(self, on_progress: Progress | None = None) -> None:
        """Index all events of the store. `on_progress` is called after each step with the indexed and the last position.

        Several processes may do this at once. If it is cancelled, what was indexed remains.
        """
        await self._with_replacement(partial(self._catch_up, on_progress))

    async def lag(self) -> int:
        """How many positions the index is behind the newest event."""
        state = await self._with_replacement(partial(self._in_thread, self._file.state))
        return await self._database.read(_behind, state)

    async def rebuild(self, on_progress: Progress | None = None) -> None:
        """Discard the index and build it again from the log."""
        await self._in_thread(self._file.renew)
        await self.catch_up(on_progress)

    async def follow(self, completed: Completed = ignore_cycle, every: float = FOLLOW_SECONDS) -> None:
        """Catch up every few seconds until cancelled. Raises every error."""
        while True:
            # Each indexed step remains, so a large store is indexed in many cycles.
            await self.catch_up(lambda _done, _of: completed())
            completed()
            await asyncio.sleep(every)

    async def close(self) -> None:
        """Finish the current step and close the index. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._thread.submit(self._file.close)
        await asyncio.to_thread(self._thread.shutdown)

    async def _search(
        self, wanted: Sequence[SearchTerm], scope: SearchScope, limit: int, before: int, most: int
    ) -> CollectedHits:
        """Compare candidates, newest first, until there are enough hits."""
        if not await self._is_usable():
            await self._catch_up(None)
        file = self._file.opened
        plan = await self._in_thread(self._file.plan, wanted, scope.session_id, scope.marks)
        hits: list[SearchHit] = []
        gone: list[int] = []
        page, compared, complete = FIRST_PAGE, 0, plan is None
        while not complete and len(hits) < limit and compared < most:
            found = await self._in_thread(self._file.candidates, plan, before=before, count=page)
            for start in range(0, len(found), SLICE):
                if len(hits) < limit:
                    part = found[start : start + SLICE]
                    matching, missing = await self._database.read(_compare, wanted, scope, part, limit - len(hits))
                    hits += matching
                    gone += missing
            compared += len(found)
            if len(found) < page:
                complete = len(hits) < limit
                break
            before, page = found[-1], min(2 * page, LAST_PAGE)
        if self._file.opened != file:
            raise IndexDamaged(f"the search index {self._file.location} was replaced during a search")
        await self._forget(gone)
        return CollectedHits(hits, complete)

    async def _forget(self, gone: Sequence[int]) -> None:
        """Remove pruned events from the index. A failure does no harm: the next search that finds them tries again."""
        if gone:
            try:
                await self._in_thread(self._file.forget, gone)
            except HoldfastError as e:
                log.debug("could not remove %d pruned events from the index: %s", len(gone), e)

    async def _is_usable(self) -> bool:
        """Whether the index belongs to this store and has all that it had before: another process may have replaced it."""
        state = await self._in_thread(self._file.state)
        return state is not None and state.position >= self._reached and await self._database.read(_agrees, state)

    async def _catch_up(self, on_progress: Progress | None) -> None:
        state = await self._ensure_begun()
        _, newest = await self._database.read(_head)
        while state.position < newest:
            batch = await self._database.read(_next_batch, state, newest)
            if await self._in_thread(self._file.add, batch.pieces, state, batch.after):
                state = batch.after
            else:
                state = await self._ensure_begun()
            if on_progress is not None:
                on_progress(state.position, newest)
        self._reached = newest

    async def _ensure_begun(self) -> IndexState:
        """The state of the index. If it does not belong to this store and its history, it is replaced first."""
        store_id, _ = await self._database.read(_head)
        for _ in range(ATTEMPTS):
            state = await self._in_thread(self._file.begin, store_id)
            if await self._database.read(_agrees, state):
                return state
            log.info("the search index belongs to another store or another history of it; rebuilding it")
            await self._in_thread(self._file.renew)
        raise Unavailable("another process is indexing another store at the same path")

    async def _with_replacement(self, work: Callable[[], Awaitable[T]]) -> T:
        """Run the work; retry it if the index was damaged and has been replaced."""
        for _ in range(ATTEMPTS):
            try:
                return await work()
            except IndexDamaged as e:
                log.warning("%s", e)
        raise IoFailed(f"the search index at {self._file.location} is damaged repeatedly; check the disk")

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._closed:
            raise Unavailable(f"the search index {self._file.location} has been closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(work, *args, **kwargs))


async def open_index(path: Path, database: Database, *, busy_seconds: float = BUSY_SECONDS) -> SearchIndex:
    """Open or create the index at the path; `catch_up` adds what is missing."""
    return await open_on(SearchFile(path, busy_seconds), database)


async def open_on(kept: IndexPort, database: Database) -> SearchIndex:
    """Like `open_index`, for any storage."""
    index = SearchIndex(kept, database)
    try:
        await index.lag()
    except BaseException:
        await index.close()
        raise
    return index


# Reads of the store.


def _behind(tx: Transaction, state: IndexState | None) -> int:
    row = tx.one("log.get_last_position")
    last = cast("int | None", row and row[0]) or 0
    return last if state is None or state.store_id != meta.get_store_id(tx) else max(0, last - state.position)


def _head(tx: Transaction) -> tuple[str, int]:
    """The store id, and the highest position ever assigned to an event, also if that event was pruned."""
    row = tx.one("search.get_last_position")
    return meta.get_store_id(tx), 0 if row is None else cast("int", row[0])


def _agrees(tx: Transaction, state: IndexState) -> bool:
    """Whether the state belongs to this store and its history. A copy restored by hand has the same id but another history."""
    store_id, newest = _head(tx)
    if store_id != state.store_id or newest < state.position:
        return False
    row = tx.one("search.get_event_at", position=state.position)
    return row is None or _mark(*row) == state.mark


def _mark(session_id: Value, seq: Value, at: Value) -> str:
    return f"{session_id} {seq} {at}"


def _next_batch(tx: Transaction, state: IndexState, newest: int) -> _Batch:
    """The next events, read one by one, so that a few long ones do not fill the memory."""
    pieces: list[IndexedText] = []
    position, mark, letters = state.position, state.mark, 0
    for _ in range(BATCH_EVENTS):
        row = tx.one("log.list_after_position", after=position, upto=newest, limit=1)
        if row is None:
            position = newest  # the rest was pruned
            break
        position, session_id, seq, kind, at, body = cast("tuple[int, str, int, str, int, str]", row)
        mark = _mark(session_id, seq, at)
        text, marks = _read(position, kind, body)
        if text:
            pieces.append(IndexedText(position, session_id, text, seq, marks))
            letters += len(text)
        if position == newest or letters > BATCH_LETTERS:
            break
    return _Batch(pieces, IndexState(state.store_id, position, mark))


def _read(position: int, kind: str, body: str) -> tuple[str, tuple[str, ...]]:
    """The text of an event, and its marks."""
    try:
        event = decode(kind, body)
    except Corrupt as e:
        log.warning("the event at position %d is not searchable: %s", position, e)
        return "", ()
    text = searchable(event)
    return text, searched_as(event) if text else ()


def _compare(
    tx: Transaction, wanted: Sequence[SearchTerm], scope: SearchScope, positions: Sequence[int], limit: int
) -> tuple[list[SearchHit], list[int]]:
    """The matching candidates, at most `limit`, and those that are no longer in the store."""
    hits: list[SearchHit] = []
    gone: list[int] = []
    shown: dict[str, bool] = {}
    for position in positions:
        row = tx.one("log.get_at_position", position=position)
        if row is None:
            gone.append(position)
            continue
        session_id, seq, kind, at, body = cast("tuple[str, int, str, int, str]", row)
        if session_id not in shown:
            shown[session_id] = _is_shown(tx, scope, session_id)
        text, marks = _read(position, kind, body) if shown[session_id] else ("", ())
        if text and scope.has(marks) and matches_all(folded := fold(text), wanted):
            rated = relevance(text, folded, kind, wanted)
            spelled = [term.spelled_in(folded) for term in wanted]
            hits.append(SearchHit(session_id, seq, at, kind, position, *snippet(text, folded, spelled), rated))
            if len(hits) == limit:
                break
    return hits, gone


def _is_shown(tx: Transaction, scope: SearchScope, session_id: str) -> bool:
    if scope.session_id is not None:
        return scope.session_id == session_id
    summary = sessions.get(tx, session_id).summary
    return (scope.trashed or summary.trashed_at is None) and (scope.sides or summary.side_of is None)
