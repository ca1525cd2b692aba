"""The search index as a table in the PostgreSQL database of the store, shared by all workers.

The table contains the case-folded texts of the events, and how far it is indexed. A row is a passage: consecutive events
of a session. One row per event took twice the space: the server compresses values longer than two kilobytes, and
neighbouring events share most of their trigrams. New texts start a new passage; when the open passages of a session
together reach the full size, they are merged into one. The table is filled outside the write path, like the index file of a
SQLite store. With the extension pg_trgm a trigram index finds the candidates; without it the server reads every text,
which finds the same and takes longer. Whether the index works for a script depends on the LC_CTYPE of the database
(`postgres.connection.check_server`).
"""

import logging
from collections.abc import Sequence
from typing import Literal, cast

import msgspec

from holdfast.model.errors import HoldfastError
from holdfast.store.database import Database, Transaction
from holdfast.store.postgres.driver import PostgresDatabase
from holdfast.store.postgres.transaction import PostgresTransaction
from holdfast.store.search import trigrams
from holdfast.store.search.folding import fold
from holdfast.store.search.fts_file import IndexedText, IndexState
from holdfast.store.search.index import SearchIndex, open_on
from holdfast.store.search.trigrams import SearchTerm
from holdfast.store.search.typos import ANY

log = logging.getLogger(__name__)

MOST_TERMS = 3
"""How many terms the server searches for, the longest first; the candidates are then compared with all."""
QUERIES: tuple[Literal["search.find_by_one", "search.find_by_two", "search.find_by_three"], ...] = (
    "search.find_by_one",
    "search.find_by_two",
    "search.find_by_three",
)
SLOTS = ("a", "b", "c")
BEHIND_NUMBER, BETWEEN_EVENTS = "\x1f", "\x1e"
"""Separators inside a passage; no indexed text contains them."""
FULL = 8_192
"""Characters of a full passage; `search.list_open_passages` and an index have the same number."""


_REPLACED = str.maketrans(dict.fromkeys(BEHIND_NUMBER + BETWEEN_EVENTS, "\ufffd"))


class SearchQuery(msgspec.Struct, frozen=True):
    """For each term, the LIKE patterns of which one must match."""

    patterns: list[list[str]]
    session_id: str | None


class Passage(msgspec.Struct, frozen=True):
    """The texts of consecutive events of a session. Its position is that of the last event."""

    session_id: str
    position: int
    first_position: int
    letters: int
    folded: str

    def joined(self, other: "Passage") -> "Passage":
        """This passage with a later one appended."""
        folded = f"{self.folded}{BETWEEN_EVENTS}{other.folded}"
        return Passage(self.session_id, other.position, self.first_position, self.letters + other.letters, folded)


class SearchTable:
    """All methods block; for one thread. There is no file that can be damaged, so the index is rebuilt only on request."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self.opened = 1

    @property
    def location(self) -> str:
        return f"of {self._database.where}"

    def state(self) -> IndexState | None:
        return self._database.read_from_thread(_state, "search.get_state")

    def begin(self, store_id: str) -> IndexState:
        return self._database.write_from_thread(_begin, store_id)

    def add(self, pieces: Sequence[IndexedText], before: IndexState, after: IndexState) -> bool:
        return self._database.write_from_thread(_add, pieces, before, after)

    def forget(self, positions: Sequence[int]) -> None:
        """Does nothing: pruning a session deletes its texts from the table."""

    def plan(
        self, wanted: Sequence[SearchTerm], session_id: str | None, marks: Sequence[str] = ()
    ) -> SearchQuery | None:
        """The query for the terms. It does not use the marks: a passage has events of all roles."""
        longest = sorted(wanted, key=lambda term: term.shortest, reverse=True)[:MOST_TERMS]
        return SearchQuery([[_pattern(form) for form in term.patterns] for term in longest], session_id)

    def candidates(self, plan: SearchQuery, *, before: int, count: int) -> list[int]:
        """At least `count` positions, if there are as many: in long passages, some events may be outside the range."""
        passages = count
        while True:
            found, positions = self._database.read_from_thread(_candidates, plan, before, passages)
            if found < passages or len(positions) >= count:
                return positions
            passages *= 2

    def renew(self) -> None:
        self._database.write_from_thread(_renew)

    def close(self) -> None:
        """Does nothing: whoever opened the database closes it."""


async def open_table(database: PostgresDatabase) -> SearchIndex:
    """Open the index in the store; `catch_up` adds what is missing."""
    await _make_quick(database, database.where)
    return await open_on(SearchTable(database), database)


async def _make_quick(database: Database, where: str) -> None:
    """Create the trigram index. If that is not possible, log a warning and continue without it."""
    if await database.read(lambda tx: tx.one("search.has_index")) is not None:
        return
    try:
        if await database.read(lambda tx: tx.one("search.has_extension")) is None:
            await database.write(lambda tx: tx.run("search.create_extension"))
        await database.write(lambda tx: tx.run("search.create"))
    except (HoldfastError, AssertionError) as e:
        log.warning(
            "the extension pg_trgm is not available in %s, so searches read every text, which is slow in a large store "
            "(%s); run CREATE EXTENSION pg_trgm in that database",
            where,
            e,
        )


def _pattern(form: str) -> str:
    """The LIKE pattern for texts that contain this."""
    text = _kept(form)
    for special in ("\\", "%", "_"):
        text = text.replace(special, "\\" + special)
    return f"%{text.replace(ANY, '_')}%"


def _state(tx: Transaction, query: str) -> IndexState | None:
    row = tx.one(query)
    return None if row is None else IndexState(*cast("tuple[str, int, str]", row))


def _begin(tx: Transaction, store_id: str) -> IndexState:
    tx.run("search.add_state", store_id=store_id)
    state = _state(tx, "search.get_state")
    assert state is not None, "it was just added"
    return state


def _add(tx: Transaction, pieces: Sequence[IndexedText], before: IndexState, after: IndexState) -> bool:
    if _state(tx, "search.lock_state") != before:
        return False
    by_session: dict[str, list[IndexedText]] = {}
    for piece in pieces:
        by_session.setdefault(piece.session_id, []).append(piece)
    for session_id, said in by_session.items():
        tx.many("search.add", map(msgspec.structs.asdict, _passages(tx, session_id, said)))
    tx.run("search.put_state", store_id=after.store_id, position=after.position, mark=after.mark)
    return True


def _passages(tx: Transaction, session_id: str, pieces: Sequence[IndexedText]) -> list[Passage]:
    """The passages to write: the new texts, merged with the open passages if together they fill one."""
    new = [_passage(piece) for piece in pieces]
    growing = sum(cast("int", row[1]) for row in tx.all("search.list_open_passages", session_id=session_id))
    if growing and growing + sum(passage.letters for passage in new) >= FULL:
        new = [Passage(*row) for row in tx.all("search.take_open_passages", session_id=session_id)] + new  # type: ignore[arg-type] # the schema checks the types
    done: list[Passage] = []
    for passage in new:
        if done and done[-1].letters < FULL:
            done[-1] = done[-1].joined(passage)
        else:
            done.append(passage)
    return done


def _passage(piece: IndexedText) -> Passage:
    folded = _kept(fold(piece.text))
    numbered = f"{piece.seq}{BEHIND_NUMBER}{folded}"
    return Passage(piece.session_id, piece.position, piece.position, len(folded), numbered)


def _kept(text: str) -> str:
    """The text as it is indexed and searched, without the separators of a passage."""
    return trigrams.storable(text).translate(_REPLACED)


def _candidates(tx: Transaction, plan: SearchQuery, before: int, passages: int) -> tuple[int, list[int]]:
    """The number of passages found, and the positions of their matching events in the range."""
    assert isinstance(tx, PostgresTransaction)
    slots = dict(zip(SLOTS, plan.patterns, strict=False))
    query = QUERIES[len(plan.patterns) - 1]
    rows = tx.listed(query, before=before, count=passages, session_id=plan.session_id, **slots)
    return cast("int", rows[0][0]), [cast("int", position) for _, position in rows if position is not None]


def _renew(tx: Transaction) -> None:
    tx.run("search.delete_state")
    tx.run("search.delete_all")
