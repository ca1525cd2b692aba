"""Search over everything that was ever said: finds what grep finds, in every script.

The index is a file of its own beside a SQLite store (`searchfile`) and a table of a PostgreSQL one
(`postgres_search`). It follows the log, never the other way round: no write waits for it, and whatever
happens to it costs time but no message, since it is built anew from the log. It names candidates, newest first; each
is then read from the store and compared with the query, so a hit is always true and always there. What is not indexed
yet is not found: call `catch_up` before a search that must see everything.
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
from holdfast.model.words import searchable
from holdfast.store import meta, sessions
from holdfast.store.database import Database, Transaction, Value
from holdfast.store.grams import Needle, fold, holds, needles
from holdfast.store.searchfile import BUSY_SECONDS, Damaged, Piece, SearchFile, State
from holdfast.store.snippet import Span, snippet

P = ParamSpec("P")
T = TypeVar("T")
Progress = Callable[[int, int], None]
log = logging.getLogger(__name__)

BATCH_EVENTS = 1_000
BATCH_LETTERS = 4_000_000
"""What is indexed in one step, more or less: enough to be worth a commit, little enough that a search can slip in."""
FIRST_PAGE = 64
LAST_PAGE = 4_096
"""Candidates fetched at once. Each page is twice the last: most searches end with the first."""
SLICE = 256
"""Candidates compared in one read, so that no snapshot of the store is held for long."""
FOLLOW_SECONDS = 2.0
ATTEMPTS = 3
"""How often a bad index is begun anew before the search gives up."""
NEWEST = 2**62


class Hit(msgspec.Struct, frozen=True):
    """An event that holds what was looked for. `marks` says where in the snippet, as (start, end) pairs in order."""

    session_id: str
    seq: int
    at: int
    kind: str
    position: int
    snippet: str
    marks: tuple[Span, ...]


class Scope(msgspec.Struct, frozen=True, kw_only=True):
    """Where to look. Sessions in the trash and side sessions are left out unless they are asked for or named."""

    session_id: str | None = None
    trashed: bool = False
    sides: bool = False


EVERYWHERE = Scope()


class _Batch(msgspec.Struct, frozen=True):
    """Events that follow a state of the index, and the state of an index that has them."""

    pieces: list[Piece]
    after: State


class Index(Protocol):
    """Where the index is kept. All methods block, belong to one thread, and raise Damaged if a new one had to be begun."""

    opened: int
    """How many indexes this has been: the present one's number."""

    @property
    def place(self) -> str:
        """For people."""

    def state(self) -> State | None:
        """How far the index is; None if it is new."""

    def begin(self, store_id: str) -> State:
        """Make a new index one of this store, or say how far the one that is there is."""

    def add(self, pieces: Sequence[Piece], before: State, after: State) -> bool:
        """Index these events, which lead from one state to the next; False if somebody has moved on from there."""

    def forget(self, positions: Sequence[int]) -> None:
        """Drop events that the store no longer has."""

    def plan(self, wanted: Sequence[Needle], session_id: str | None) -> Any | None:
        """How to ask for the needles; None if no event can fit."""

    def candidates(self, plan: Any, *, before: int, count: int) -> list[int]:
        """Positions of events that may fit, newest first. All that fit are among them."""

    def renew(self) -> None:
        """Throw the index away and begin a new one."""

    def close(self) -> None:
        """Let go of it."""


class SearchIndex:
    """The index of one store; open it with `open_index`. All methods may be called from many tasks at once."""

    def __init__(self, index: Index, database: Database) -> None:
        self._file = index
        self._database = database
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="holdfast-search")
        self._closed = False
        self._reached = 0

    async def search(
        self, query: str, *, limit: int = 20, scope: Scope = EVERYWHERE, before_position: int | None = None
    ) -> list[Hit]:
        """The newest events that hold every word of the query; what is in quotes is taken as one, blanks included.

        The next page comes with the position of the last hit. Complete up to where the index is (`lag`);
        an index that is new or turns out to be damaged is built first. Raises Invalid for a query without words.
        """
        wanted = needles(query)
        if limit < 1:
            raise Invalid(f"a search needs a limit of at least 1, not {limit}")
        before = NEWEST if before_position is None else before_position
        return await self._mending(partial(self._search, wanted, scope, limit, before))

    async def catch_up(self, on_progress: Progress | None = None) -> None:
        """Index all that is in the store by now. `on_progress` is told after each step which position of which is done.

        Several processes may do this at once. If it is cancelled, what was indexed stays so.
        """
        await self._mending(partial(self._catch_up, on_progress))

    async def lag(self) -> int:
        """How many positions the index is behind the newest event."""
        state = await self._mending(partial(self._in_thread, self._file.state))
        return await self._database.read(_behind, state)

    async def rebuild(self, on_progress: Progress | None = None) -> None:
        """Throw the index away and build it from the log."""
        await self._in_thread(self._file.renew)
        await self.catch_up(on_progress)

    async def follow(self, every: float = FOLLOW_SECONDS) -> None:
        """Catch up every few seconds until cancelled. What stands in the way is logged once and tried again."""
        said = ""
        while True:
            try:
                await self.catch_up()
                said = ""
            except HoldfastError as e:
                if str(e) != said:
                    log.warning("the search index stays behind: %s", e)
                said = str(e)
            await asyncio.sleep(every)

    async def close(self) -> None:
        """Finish the step in hand and let go of the file. May be called twice."""
        if self._closed:
            return
        self._closed = True
        self._thread.submit(self._file.close)
        await asyncio.to_thread(self._thread.shutdown)

    async def _search(self, wanted: Sequence[Needle], scope: Scope, limit: int, before: int) -> list[Hit]:
        """Walk the candidates from the newest on until there are hits enough."""
        if not await self._is_usable():
            await self._catch_up(None)
        file = self._file.opened
        plan = await self._in_thread(self._file.plan, wanted, scope.session_id)
        hits: list[Hit] = []
        gone: list[int] = []
        page = FIRST_PAGE
        while plan is not None and len(hits) < limit:
            found = await self._in_thread(self._file.candidates, plan, before=before, count=page)
            for start in range(0, len(found), SLICE):
                if len(hits) < limit:
                    part = found[start : start + SLICE]
                    fitting, missing = await self._database.read(_compare, wanted, scope, part, limit - len(hits))
                    hits += fitting
                    gone += missing
            if len(found) < page:
                break
            before, page = found[-1], min(2 * page, LAST_PAGE)
        if self._file.opened != file:
            raise Damaged(f"the search index {self._file.place} was begun anew in the midst of a search")
        await self._forget(gone)
        return hits

    async def _forget(self, gone: Sequence[int]) -> None:
        """Drop what was pruned from the store. It can wait: whoever finds it again tries again."""
        if gone:
            try:
                await self._in_thread(self._file.forget, gone)
            except HoldfastError as e:
                log.debug("%d events that were pruned stay in the index for now: %s", len(gone), e)

    async def _is_usable(self) -> bool:
        """Whether the index is one of this store and has all that we saw in it: another process may have begun a new one."""
        state = await self._in_thread(self._file.state)
        return state is not None and state.position >= self._reached and await self._database.read(_agrees, state)

    async def _catch_up(self, on_progress: Progress | None) -> None:
        state = await self._begun()
        _, newest = await self._database.read(_head)
        while state.position < newest:
            batch = await self._database.read(_next_batch, state, newest)
            if await self._in_thread(self._file.add, batch.pieces, state, batch.after):
                state = batch.after
            else:
                state = await self._begun()
            if on_progress is not None:
                on_progress(state.position, newest)
        self._reached = newest

    async def _begun(self) -> State:
        """How far the index is, which is begun anew if it is not one of this store and this past."""
        store_id, _ = await self._database.read(_head)
        for _ in range(ATTEMPTS):
            state = await self._in_thread(self._file.begin, store_id)
            if await self._database.read(_agrees, state):
                return state
            log.info("the search index is of another store, or of a past that this one no longer has; it is built anew")
            await self._in_thread(self._file.renew)
        raise Unavailable("another process keeps indexing another store in the same place")

    async def _mending(self, work: Callable[[], Awaitable[T]]) -> T:
        """Do the work, again if the index turns out to be damaged: it is a new one then."""
        for _ in range(ATTEMPTS):
            try:
                return await work()
            except Damaged as e:
                log.warning("%s", e)
        raise IoFailed(f"no search index can be kept at {self._file.place}: it is damaged again and again")

    async def _in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        if self._closed:
            raise Unavailable(f"the search index {self._file.place} has been closed")
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._thread, partial(work, *args, **kwargs))


async def open_index(path: Path, database: Database, *, busy_seconds: float = BUSY_SECONDS) -> SearchIndex:
    """Open the index at the path, or begin one; what is missing in it is added by `catch_up`."""
    return await begin_on(SearchFile(path, busy_seconds), database)


async def begin_on(kept: Index, database: Database) -> SearchIndex:
    """As `open_index`, wherever the index is kept."""
    index = SearchIndex(kept, database)
    try:
        await index.lag()
    except BaseException:
        await index.close()
        raise
    return index


# What is read from the store.


def _behind(tx: Transaction, state: State | None) -> int:
    row = tx.one("log.last_position")
    last = cast("int | None", row and row[0]) or 0
    return last if state is None or state.store_id != meta.store_id(tx) else max(0, last - state.position)


def _head(tx: Transaction) -> tuple[str, int]:
    """The store, and the highest position that it has given to an event, even if that one was pruned since."""
    row = tx.one("search.newest")
    return meta.store_id(tx), 0 if row is None else cast("int", row[0])


def _agrees(tx: Transaction, state: State) -> bool:
    """Whether the state is one of this store and its past. A copy that was put back by hand has the same id but another past."""
    store_id, newest = _head(tx)
    if store_id != state.store_id or newest < state.position:
        return False
    row = tx.one("search.at_position", position=state.position)
    return row is None or _mark(*row) == state.mark


def _mark(session_id: Value, seq: Value, at: Value) -> str:
    return f"{session_id} {seq} {at}"


def _next_batch(tx: Transaction, state: State, newest: int) -> _Batch:
    """The next events, read one by one: a few long ones must not fill the memory."""
    pieces: list[Piece] = []
    position, mark, letters = state.position, state.mark, 0
    for _ in range(BATCH_EVENTS):
        row = tx.one("log.follow", after=position, upto=newest, limit=1)
        if row is None:
            position = newest  # what stood there was pruned
            break
        position, session_id, seq, kind, at, body = cast("tuple[int, str, int, str, int, str]", row)
        mark = _mark(session_id, seq, at)
        if text := _words(position, kind, body):
            pieces.append(Piece(position, session_id, text, seq))
            letters += len(text)
        if position == newest or letters > BATCH_LETTERS:
            break
    return _Batch(pieces, State(state.store_id, position, mark))


def _words(position: int, kind: str, body: str) -> str:
    try:
        return searchable(decode(kind, body))
    except Corrupt as e:
        log.warning("the event at position %d is left out of the search: %s", position, e)
        return ""


def _compare(
    tx: Transaction, wanted: Sequence[Needle], scope: Scope, positions: Sequence[int], room: int
) -> tuple[list[Hit], list[int]]:
    """Those of the candidates that fit, as many as there is room for, and those that are gone from the store."""
    hits: list[Hit] = []
    gone: list[int] = []
    shown: dict[str, bool] = {}
    for position in positions:
        row = tx.one("log.at_position", position=position)
        if row is None:
            gone.append(position)
            continue
        session_id, seq, kind, at, body = cast("tuple[str, int, str, int, str]", row)
        if session_id not in shown:
            shown[session_id] = _is_shown(tx, scope, session_id)
        text = _words(position, kind, body) if shown[session_id] else ""
        if text and holds(folded := fold(text), wanted):
            hits.append(Hit(session_id, seq, at, kind, position, *snippet(text, folded, wanted)))
            if len(hits) == room:
                break
    return hits, gone


def _is_shown(tx: Transaction, scope: Scope, session_id: str) -> bool:
    if scope.session_id is not None:
        return scope.session_id == session_id
    summary = sessions.get(tx, session_id).summary
    return (scope.trashed or summary.trashed_at is None) and (scope.sides or summary.side_of is None)
