"""The search index of a SQLite store as a file: opened, filled, queried, and replaced when it is damaged.

It contains nothing that is not in the store, so it is never repaired: a file that cannot be read, has an older format or
belongs to another store is removed, and a new one is started. Other processes may have it open: they keep the removed file
until they check the path again, which they do before each use, and then open the new one. Three rules make that safe. A
process that opens or removes the file holds a lock file. A process removes only the file that it found damaged. And
closing never removes the WAL by name, which may then belong to the next file. All methods block; for one thread.
"""

import fcntl
import os
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, TypeVar, cast

import apsw
import msgspec

from holdfast.model.errors import DiskFull, HoldfastError, IoFailed, ReadOnly, Unavailable, Unsupported
from holdfast.store import queries
from holdfast.store.database import Value
from holdfast.store.search import trigrams
from holdfast.store.search.folding import fold
from holdfast.store.search.trigrams import SearchTerm
from holdfast.store.sqlite import location

T = TypeVar("T")
Params = Mapping[str, Value]

FORMAT = 2
"""Increased whenever older files would miss something, such as other trigrams or other texts. The schema has the same number."""
BUSY_SECONDS = 5.0
"""How long to wait for another process that fills the same index: a batch takes about a second."""
LOCK_SECONDS = 10.0
"""How long to wait for another process that opens the file, which takes milliseconds."""
MAX_TERMS = 8
FEWEST_GRAMS = 3
"""The most terms per query, and the fewest trigrams of each; candidates are then compared with all terms."""
FEW_TERMS = 256
"""A short term that is a prefix of more index terms than this is common; querying each would take longer than it saves."""

# Errors of SQLite for a file that is damaged or not ours.
_DAMAGE = (
    apsw.CorruptError,
    apsw.NotADBError,
    apsw.IOError,
    apsw.SQLError,
    apsw.ConstraintError,
    apsw.MismatchError,
    apsw.FormatError,
    apsw.InternalError,
)


class IndexDamaged(Exception):
    """The file was damaged; a new, empty one has replaced it."""


class IndexState(msgspec.Struct, frozen=True):
    """Which store is indexed, up to which position, and which event is there."""

    store_id: str
    position: int
    mark: str


class IndexedText(msgspec.Struct, frozen=True):
    """The text of one event."""

    position: int
    session_id: str
    text: str
    seq: int
    marks: tuple[str, ...] = ()
    """The role and the tools of the event, as `role:NAME` and `tool:NAME`."""


class IndexQuery(msgspec.Struct, frozen=True):
    """A query of the index."""

    query: Literal["search.find_by_grams", "search.find_by_letters"]
    expression: str


class SearchFile:
    def __init__(self, path: Path, busy_seconds: float) -> None:
        self.path = path
        self._busy_seconds = busy_seconds
        self._queries = queries.load()
        self._connection: apsw.Connection | None = None
        self._inode = 0
        self.opened = 0
        """The number of files opened so far."""

    @property
    def location(self) -> str:
        return str(self.path)

    def state(self) -> IndexState | None:
        """How far the store is indexed; None if the index is new."""
        return self._use(self._state)

    def begin(self, store_id: str) -> IndexState:
        """Bind a new index to this store; returns the state of the index."""

        def work(connection: apsw.Connection) -> IndexState:
            state = self._state(connection)
            if state is None:
                state = IndexState(store_id, 0, "")
                self._run(connection, "search.put_state", msgspec.structs.asdict(state))
            return state

        return self.state() or self._use(work, writes=True)

    def add(self, pieces: Sequence[IndexedText], before: IndexState, after: IndexState) -> bool:
        """Index these events, which lead from one state to the next; False if another process was faster."""

        def work(connection: apsw.Connection) -> bool:
            if self._state(connection) != before:
                return False
            for piece in pieces:
                self._add(connection, piece)
            self._run(connection, "search.put_state", msgspec.structs.asdict(after))
            return True

        return self._use(work, writes=True)

    def forget(self, positions: Sequence[int]) -> None:
        """Remove events that the store no longer has."""

        def work(connection: apsw.Connection) -> None:
            for position in positions:
                self._run(connection, "search.delete_grams", {"position": position})
                self._run(connection, "search.delete_letters", {"position": position})

        self._use(work, writes=True)

    def plan(
        self, wanted: Sequence[SearchTerm], session_id: str | None, marks: Sequence[str] = ()
    ) -> IndexQuery | None:
        """The query for the terms in events with these marks; None if no event can match."""
        names = [*marks] if session_id is None else [session_id, *marks]
        return self._use(lambda connection: self._plan(connection, wanted, names))

    def candidates(self, plan: IndexQuery, *, before: int, count: int) -> list[int]:
        """Positions of events that may match, newest first. All that match are among them."""
        params: Params = {"expression": plan.expression, "before": before, "count": count}
        return cast("list[int]", self._use(lambda connection: self._run(connection, plan.query, params)))

    def renew(self) -> None:
        """Remove the file, unless another process has, and start a new one."""
        with self._locked():
            if self._is_current():
                self._remove()
            self.close()
            self._open()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close(True)
            self._connection = None

    # Queries on the connection.

    def _run(self, connection: apsw.Connection, query: str, params: Params) -> list[Value]:
        """The first column."""
        rows = connection.execute(self._queries[query], params).fetchall()
        return [cast("Value", row[0]) for row in rows]

    def _state(self, connection: apsw.Connection) -> IndexState | None:
        rows = connection.execute(self._queries["search.get_state"]).fetchall()
        return IndexState(*cast("tuple[str, int, str]", rows[0])) if rows else None

    def _add(self, connection: apsw.Connection, piece: IndexedText) -> None:
        position, session, folded = piece.position, piece.session_id, fold(piece.text)
        by_grams: Params = {
            "position": position,
            "text": trigrams.pad_for_index(folded),
            "session": trigrams.mark_trigram(session),
            "about": "".join(map(trigrams.mark_trigram, piece.marks)),
        }
        by_letters: Params = {
            "position": position,
            "letters": trigrams.letters(folded),
            "session": " ".join(map(trigrams.mark_word, (session, *piece.marks))),
        }
        self._run(connection, "search.add_grams", by_grams)
        self._run(connection, "search.add_letters", by_letters)

    def _plan(
        self, connection: apsw.Connection, wanted: Sequence[SearchTerm], names: Sequence[str]
    ) -> IndexQuery | None:
        by_length = sorted(wanted, key=lambda term: term.shortest, reverse=True)
        long = [term for term in by_length if not term.is_short][:MAX_TERMS]
        short = [term for term in by_length if term.is_short][:MAX_TERMS]
        parts = [trigrams.trigram_expression(term, max(FEWEST_GRAMS, trigrams.MAX_GRAMS // len(long))) for term in long]
        for term in short:
            terms = self._short_term_queries(connection, term)
            if not terms:
                return None
            if len(terms) <= FEW_TERMS:
                parts.append(trigrams.any_of(terms))
        if parts:
            marks = [trigrams.quoted(trigrams.mark_trigram(name)) for name in names]
            return IndexQuery("search.find_by_grams", trigrams.all_of(parts + marks))
        marks = [trigrams.quoted(trigrams.mark_word(name)) for name in names]
        return IndexQuery(
            "search.find_by_letters", trigrams.all_of([trigrams.letter_expression(term) for term in short] + marks)
        )

    def _short_term_queries(self, connection: apsw.Connection, term: SearchTerm) -> list[str]:
        """The query for each spelling: a short one by the index terms that begin with it, if they are few, else by trigrams."""
        found: list[str] = []
        for form in term.forms:
            if len(form) < trigrams.GRAM:
                low, high = trigrams.term_range(form)
                terms = self._run(connection, "search.list_terms", {"low": low, "high": high, "count": FEW_TERMS + 1})
                found += [trigrams.quoted(cast("str", term)) for term in terms]
            else:
                found.append(trigrams.trigram_expression(SearchTerm((form,))))
        return found

    # The file and its connection.

    def _use(self, work: Callable[[apsw.Connection], T], *, writes: bool = False) -> T:
        """Run the work in a transaction on the present file. Raises IndexDamaged if that was damaged."""
        try:
            connection = self._current()
            with _transaction(connection, "BEGIN IMMEDIATE" if writes else "BEGIN"):
                return work(connection)
        except apsw.Error as e:
            if (known := self._translate(e)) is not None:
                raise known from e
            if not isinstance(e, _DAMAGE) or (isinstance(e, apsw.SQLError) and str(e).startswith("fts5:")):
                raise  # a bug, such as an expression that FTS5 cannot parse; a new file would not help
            self.renew()
            raise IndexDamaged(f"the search index {self.path} is damaged ({e}); rebuilding it") from e

    def _current(self) -> apsw.Connection:
        if self._connection is None or not self._is_current():
            with self._locked():
                self.close()
                self._open()
        assert self._connection is not None
        return self._connection

    def _is_current(self) -> bool:
        try:
            return self._connection is not None and self.path.stat().st_ino == self._inode
        except FileNotFoundError:
            return False

    def _open(self) -> None:
        """Open the file, or create a new one if it is missing or unusable."""
        try:
            if self._connect():
                return
        except apsw.Error as e:
            if not isinstance(e, _DAMAGE):
                raise self._translate(e) or e from e
        self._remove()
        try:
            self._connect()
        except apsw.Error as e:
            raise self._translate(e) or IoFailed(f"cannot create a search index at {self.path}: {e}") from e

    def _connect(self) -> bool:
        """Open the file; False if it has an older format."""
        if not self.path.exists():
            self._remove()
        location.prepare(self.path)
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        # From here on, closing never removes the WAL by name.
        persist = array("i", [1])
        connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, persist.buffer_info()[0])
        usable = False
        try:
            usable = self._set_up(connection)
        finally:
            if not usable:
                connection.close(True)
        if usable:
            self._connection, self._inode = connection, self.path.stat().st_ino
            self.opened += 1
        return usable

    def _set_up(self, connection: apsw.Connection) -> bool:
        """Configure the connection, and create the schema if the file is new; False if it has an older format."""
        connection.set_busy_timeout(int(self._busy_seconds * 1000))
        connection.execute(self._queries["search.configure"]).fetchall()
        found = cast("int", connection.pragma("user_version"))
        if found > FORMAT:
            raise Unsupported(
                f"the search index {self.path} was written by a newer release: use that release, "
                "or remove the file to rebuild it"
            )
        if found == 0:
            with _transaction(connection, "BEGIN IMMEDIATE"):
                connection.execute(self._queries["search.create"]).fetchall()
        return found in (0, FORMAT)

    def _remove(self) -> None:
        """Remove the database file first: SQLite discards a WAL without a database, but would replay it into another one."""
        for end in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + end).unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Hold the lock of all processes for opening and removing the file."""
        path = self.path.with_name(self.path.name + "-lock")
        location.prepare(path)
        try:
            descriptor = os.open(path, os.O_RDWR)
            try:
                _lock(descriptor, path)
                yield
            finally:
                os.close(descriptor)
        except OSError as e:
            raise ReadOnly(f"cannot write a search index at {self.path}: {e.strerror}") from e

    def _translate(self, error: apsw.Error) -> HoldfastError | None:
        """Our error for a problem outside the file, such as a full disk; None if the file itself is damaged."""
        match error:
            case apsw.FullError():
                return DiskFull(
                    f"the disk is full: cannot write to the search index {self.path}; messages are not affected"
                )
            case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError() | apsw.AuthError():
                return ReadOnly(f"cannot write to the search index {self.path}: {error}")
            case apsw.BusyError() | apsw.LockedError():
                return Unavailable(f"another process has locked the search index {self.path}; try again soon")
            case _:
                return None


@contextmanager
def _transaction(connection: apsw.Connection, begin: str) -> Iterator[None]:
    connection.execute(begin)
    try:
        yield
        connection.execute("COMMIT")
    finally:
        if connection.in_transaction:
            connection.execute("ROLLBACK")


def _lock(descriptor: int, path: Path) -> None:
    limit = time.monotonic() + LOCK_SECONDS
    while True:
        try:
            return fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            if time.monotonic() > limit:
                raise Unavailable(f"another process has held {path} for {LOCK_SECONDS:.0f} s") from e
            time.sleep(0.01)
