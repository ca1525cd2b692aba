"""The search index as a table of the store's own PostgreSQL database, shared by all workers.

The table holds the words of the events without differences of case, and how far it is. A row is a passage: some events
of a session that follow each other. One event to a row took twice the room: what is longer than two kilobytes is
compressed by the server, and neighbours share most of their trigrams. New words begin a passage of their own, and when
those of a session have grown together to a full one they become one. The table is filled from outside the
write path, as the file beside a SQLite store is. With the extension pg_trgm an index of trigrams finds the candidates;
without it the server reads every text, which finds the same and takes longer. Which database has the right kind of
characters for it is a matter of its LC_CTYPE (`postgres_connection.refuse_unfit`).
"""

import logging
from collections.abc import Sequence
from typing import Literal, cast

import msgspec

from holdfast.model.errors import HoldfastError
from holdfast.store import grams
from holdfast.store.database import Database, Transaction
from holdfast.store.grams import Needle
from holdfast.store.postgres import PostgresDatabase
from holdfast.store.postgres_transaction import PostgresTransaction
from holdfast.store.search import SearchIndex, begin_on
from holdfast.store.searchfile import Piece, State

log = logging.getLogger(__name__)

MOST_NEEDLES = 3
"""How many needles the server is asked for, the longest first; the comparison looks at all."""
QUERIES: tuple[Literal["search.by_one", "search.by_two", "search.by_three"], ...] = (
    "search.by_one",
    "search.by_two",
    "search.by_three",
)
SLOTS = ("a", "b", "c")
BEHIND_NUMBER, BETWEEN_EVENTS = "\x1f", "\x1e"
"""Inside a passage; no text that is kept has them."""
FULL = 8_192
"""Letters of a passage that grows no more; `search.growing` and an index say it too."""


_REPLACED = str.maketrans(dict.fromkeys(BEHIND_NUMBER + BETWEEN_EVENTS, "\ufffd"))


class Asked(msgspec.Struct, frozen=True):
    """A question to the table: for each needle the patterns of which one must fit."""

    patterns: list[list[str]]
    session_id: str | None


class Passage(msgspec.Struct, frozen=True):
    """The words of some events of a session that follow each other. Its position is that of the last."""

    session_id: str
    position: int
    first_position: int
    letters: int
    folded: str

    def joined(self, other: "Passage") -> "Passage":
        """This and one that comes behind it."""
        folded = f"{self.folded}{BETWEEN_EVENTS}{other.folded}"
        return Passage(self.session_id, other.position, self.first_position, self.letters + other.letters, folded)


class SearchTable:
    """All methods block, and belong to one thread. No file can be damaged here, so nothing is ever renewed unasked."""

    def __init__(self, database: PostgresDatabase) -> None:
        self._database = database
        self.opened = 1

    @property
    def place(self) -> str:
        return f"of {self._database.where}"

    def state(self) -> State | None:
        return self._database.read_from_thread(_state, "search.state")

    def begin(self, store_id: str) -> State:
        return self._database.write_from_thread(_begin, store_id)

    def add(self, pieces: Sequence[Piece], before: State, after: State) -> bool:
        return self._database.write_from_thread(_add, pieces, before, after)

    def forget(self, positions: Sequence[int]) -> None:
        """Nothing is named here that the log does not have, and who prunes a session takes its words with it."""

    def plan(self, wanted: Sequence[Needle], session_id: str | None) -> Asked | None:
        longest = sorted(wanted, key=lambda needle: needle.shortest, reverse=True)[:MOST_NEEDLES]
        return Asked([[_pattern(form) for form in needle.forms] for needle in longest], session_id)

    def candidates(self, plan: Asked, *, before: int, count: int) -> list[int]:
        """At least so many, if there are: of passages that reach far back, not all events may be due yet."""
        passages = count
        while True:
            found, positions = self._database.read_from_thread(_candidates, plan, before, passages)
            if found < passages or len(positions) >= count:
                return positions
            passages *= 2

    def renew(self) -> None:
        self._database.write_from_thread(_renew)

    def close(self) -> None:
        """The database is its opener's to close."""


async def open_table(database: PostgresDatabase) -> SearchIndex:
    """Begin to use the index in the store; what is missing in it is added by `catch_up`."""
    await _make_quick(database, database.where)
    return await begin_on(SearchTable(database), database)


async def _make_quick(database: Database, where: str) -> None:
    """See that there is an index of trigrams. Where there cannot be one, say so and go on without."""
    if await database.read(lambda tx: tx.one("search.indexed")) is not None:
        return
    try:
        if await database.read(lambda tx: tx.one("search.trigrams")) is None:
            await database.write(lambda tx: tx.run("search.install"))
        await database.write(lambda tx: tx.run("search.create"))
    except (HoldfastError, AssertionError) as e:
        log.warning(
            "searches in %s read every text, which takes long in a large store: the extension pg_trgm is not there "
            "(%s). CREATE EXTENSION pg_trgm in that database helps",
            where,
            e,
        )


def _pattern(form: str) -> str:
    """What LIKE wants for a text with this anywhere in it."""
    text = _kept(form)
    for special in ("\\", "%", "_"):
        text = text.replace(special, "\\" + special)
    return f"%{text}%"


def _state(tx: Transaction, query: str) -> State | None:
    row = tx.one(query)
    return None if row is None else State(*cast("tuple[str, int, str]", row))


def _begin(tx: Transaction, store_id: str) -> State:
    tx.run("search.begin", store_id=store_id)
    state = _state(tx, "search.state")
    assert state is not None, "it has just been put there"
    return state


def _add(tx: Transaction, pieces: Sequence[Piece], before: State, after: State) -> bool:
    if _state(tx, "search.hold") != before:
        return False
    by_session: dict[str, list[Piece]] = {}
    for piece in pieces:
        by_session.setdefault(piece.session_id, []).append(piece)
    for session_id, said in by_session.items():
        tx.many("search.add", map(msgspec.structs.asdict, _passages(tx, session_id, said)))
    tx.run("search.settle", store_id=after.store_id, position=after.position, mark=after.mark)
    return True


def _passages(tx: Transaction, session_id: str, pieces: Sequence[Piece]) -> list[Passage]:
    """What is to be written: the new words, and with them those that still grow if together they fill a passage."""
    new = [_passage(piece) for piece in pieces]
    growing = sum(cast("int", row[1]) for row in tx.all("search.growing", session_id=session_id))
    if growing and growing + sum(passage.letters for passage in new) >= FULL:
        new = [Passage(*row) for row in tx.all("search.take", session_id=session_id)] + new  # type: ignore[arg-type] # the schema checks the types
    done: list[Passage] = []
    for passage in new:
        if done and done[-1].letters < FULL:
            done[-1] = done[-1].joined(passage)
        else:
            done.append(passage)
    return done


def _passage(piece: Piece) -> Passage:
    folded = _kept(grams.fold(piece.text))
    numbered = f"{piece.seq}{BEHIND_NUMBER}{folded}"
    return Passage(piece.session_id, piece.position, piece.position, len(folded), numbered)


def _kept(text: str) -> str:
    """The text as it is kept and looked for, without the signs that have a meaning in a passage."""
    return grams.storable(text).translate(_REPLACED)


def _candidates(tx: Transaction, plan: Asked, before: int, passages: int) -> tuple[int, list[int]]:
    """How many passages were looked at, and the positions of their events that are due."""
    assert isinstance(tx, PostgresTransaction)
    slots = dict(zip(SLOTS, plan.patterns, strict=False))
    query = QUERIES[len(plan.patterns) - 1]
    rows = tx.listed(query, before=before, count=passages, session_id=plan.session_id, **slots)
    return cast("int", rows[0][0]), [cast("int", position) for _, position in rows if position is not None]


def _renew(tx: Transaction) -> None:
    tx.run("search.forget_state")
    tx.run("search.forget_all")
