"""The search index as a file: opened, filled, asked, and thrown away when it is bad.

It holds nothing that is not in the store, so nothing is ever repaired: a file that cannot be read, is
of an older format or belongs to another store is removed, and a new one begun. Other processes may
have it open: they keep the removed file until they look at the path again, which they do before each
use, and then take the new one. Three rules make that safe. Whoever opens or removes the file holds a
lock beside it. Nobody removes a file but the one he found bad. And closing never touches the name of
the WAL, which by then may belong to the next file. All methods block, and belong to one thread.
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
from holdfast.store import files, grams, queries
from holdfast.store.database import Value
from holdfast.store.grams import Needle

T = TypeVar("T")
Params = Mapping[str, Value]

FORMAT = 1
"""Raised whenever older files would miss something: other grams, other words of an event. The schema says it too."""
BUSY_SECONDS = 5.0
"""How long to wait for another process that fills the same index: a batch takes it a second or so."""
LOCK_SECONDS = 10.0
"""How long to wait for another process that opens it, which takes it milliseconds."""
MAX_NEEDLES = 8
FEWEST_GRAMS = 3
"""How many needles the index is asked for, and by how many trigrams each at least; the comparison looks at all."""
FEW_TERMS = 256
"""A short needle that begins more terms than this is common, and asking for each would take longer than it saves."""

# What SQLite says about a file that is not, or no longer, what we wrote.
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


class Damaged(Exception):
    """The file was bad, and a new and empty one is in its place."""


class State(msgspec.Struct, frozen=True):
    """Which store is indexed, up to which position, and what stood there."""

    store_id: str
    position: int
    mark: str


class Piece(msgspec.Struct, frozen=True):
    """The words of one event."""

    position: int
    session_id: str
    text: str
    seq: int


class Plan(msgspec.Struct, frozen=True):
    """A question to the index."""

    query: Literal["by_grams", "by_letters"]
    expression: str


class SearchFile:
    def __init__(self, path: Path, busy_seconds: float) -> None:
        self.path = path
        self._busy_seconds = busy_seconds
        self._queries = queries.load()
        self._connection: apsw.Connection | None = None
        self._inode = 0
        self.opened = 0
        """How many files this has been: the present one's number."""

    @property
    def place(self) -> str:
        return str(self.path)

    def state(self) -> State | None:
        """How far the index is; None if it is new."""
        return self._use(self._state)

    def begin(self, store_id: str) -> State:
        """Make a new index one of this store, or say how far the one that is there is."""

        def work(connection: apsw.Connection) -> State:
            state = self._state(connection)
            if state is None:
                state = State(store_id, 0, "")
                self._run(connection, "settle", msgspec.structs.asdict(state))
            return state

        return self.state() or self._use(work, writes=True)

    def add(self, pieces: Sequence[Piece], before: State, after: State) -> bool:
        """Index these events, which lead from one state to the next; False if somebody has moved on from there."""

        def work(connection: apsw.Connection) -> bool:
            if self._state(connection) != before:
                return False
            for piece in pieces:
                self._add(connection, piece)
            self._run(connection, "settle", msgspec.structs.asdict(after))
            return True

        return self._use(work, writes=True)

    def forget(self, positions: Sequence[int]) -> None:
        """Drop events that the store no longer has."""

        def work(connection: apsw.Connection) -> None:
            for position in positions:
                self._run(connection, "forget_grams", {"position": position})
                self._run(connection, "forget_letters", {"position": position})

        self._use(work, writes=True)

    def plan(self, wanted: Sequence[Needle], session_id: str | None) -> Plan | None:
        """How to ask for the needles; None if no event can fit."""
        return self._use(lambda connection: self._plan(connection, wanted, session_id))

    def candidates(self, plan: Plan, *, before: int, count: int) -> list[int]:
        """Positions of events that may fit, newest first. All that fit are among them."""
        params: Params = {"expression": plan.expression, "before": before, "count": count}
        return cast("list[int]", self._use(lambda connection: self._run(connection, plan.query, params)))

    def renew(self) -> None:
        """Remove the file, unless somebody has done so meanwhile, and begin a new one."""
        with self._locked():
            if self._is_current():
                self._remove()
            self.close()
            self._open()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close(True)
            self._connection = None

    # What is asked of the connection.

    def _run(self, connection: apsw.Connection, query: str, params: Params) -> list[Value]:
        """The first column."""
        rows = connection.execute(self._queries[f"search.{query}"], params).fetchall()
        return [cast("Value", row[0]) for row in rows]

    def _state(self, connection: apsw.Connection) -> State | None:
        rows = connection.execute(self._queries["search.state"]).fetchall()
        return State(*cast("tuple[str, int, str]", rows[0])) if rows else None

    def _add(self, connection: apsw.Connection, piece: Piece) -> None:
        position, session, folded = piece.position, piece.session_id, grams.fold(piece.text)
        by_grams: Params = {"position": position, "text": grams.indexed(folded), "session": grams.badge(session)}
        by_letters: Params = {
            "position": position,
            "letters": grams.letters(folded),
            "session": grams.badge_word(session),
        }
        self._run(connection, "add_grams", by_grams)
        self._run(connection, "add_letters", by_letters)

    def _plan(self, connection: apsw.Connection, wanted: Sequence[Needle], session_id: str | None) -> Plan | None:
        by_length = sorted(wanted, key=lambda needle: needle.shortest, reverse=True)
        long = [needle for needle in by_length if not needle.is_short][:MAX_NEEDLES]
        short = [needle for needle in by_length if needle.is_short][:MAX_NEEDLES]
        parts = [grams.by_trigrams(needle, max(FEWEST_GRAMS, grams.MAX_GRAMS // len(long))) for needle in long]
        for needle in short:
            terms = self._beginnings(connection, needle)
            if not terms:
                return None
            if len(terms) <= FEW_TERMS:
                parts.append(grams.any_of(terms))
        if parts:
            marks = [] if session_id is None else [grams.quoted(grams.badge(session_id))]
            return Plan("by_grams", grams.all_of(parts + marks))
        marks = [] if session_id is None else [grams.quoted(grams.badge_word(session_id))]
        return Plan("by_letters", grams.all_of([grams.by_letters(needle) for needle in short] + marks))

    def _beginnings(self, connection: apsw.Connection, needle: Needle) -> list[str]:
        """What to ask for each spelling: for a short one the terms that begin with it, if they are few, else its trigrams."""
        found: list[str] = []
        for form in needle.forms:
            if len(form) < grams.GRAM:
                low, high = grams.term_range(form)
                terms = self._run(connection, "terms", {"low": low, "high": high, "count": FEW_TERMS + 1})
                found += [grams.quoted(cast("str", term)) for term in terms]
            else:
                found.append(grams.by_trigrams(Needle((form,))))
        return found

    # The file and its connection.

    def _use(self, work: Callable[[apsw.Connection], T], *, writes: bool = False) -> T:
        """Run the work in a transaction on the file that is at the path now. Raises Damaged if that one was bad."""
        try:
            connection = self._current()
            with _transaction(connection, "BEGIN IMMEDIATE" if writes else "BEGIN"):
                return work(connection)
        except apsw.Error as e:
            if (known := self._named(e)) is not None:
                raise known from e
            if not isinstance(e, _DAMAGE) or (isinstance(e, apsw.SQLError) and str(e).startswith("fts5:")):
                raise  # a mistake of ours, such as an expression FTS5 cannot read; no new file would mend it
            self.renew()
            raise Damaged(f"the search index {self.path} was damaged ({e}); it is built anew") from e

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
        """Open the file, or a new one if there is none of use."""
        try:
            if self._connect():
                return
        except apsw.Error as e:
            if not isinstance(e, _DAMAGE):
                raise self._named(e) or e from e
        self._remove()
        try:
            self._connect()
        except apsw.Error as e:
            raise self._named(e) or IoFailed(f"no search index can be kept at {self.path}: {e}") from e

    def _connect(self) -> bool:
        """Open the file; False if it is of an older format."""
        if not self.path.exists():
            self._remove()
        files.prepare(self.path)
        connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        # Closing keeps the name of the WAL, whatever happens from here on.
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
        """Make the connection ours, with the schema in place if the file is new; False if it is of an older format."""
        connection.set_busy_timeout(int(self._busy_seconds * 1000))
        connection.execute(self._queries["search.settings"]).fetchall()
        found = cast("int", connection.pragma("user_version"))
        if found > FORMAT:
            raise Unsupported(
                f"the search index {self.path} was made by a newer release: use that one, or remove the file, "
                "and it is built anew"
            )
        if found == 0:
            with _transaction(connection, "BEGIN IMMEDIATE"):
                connection.execute(self._queries["search.create"]).fetchall()
        return found in (0, FORMAT)

    def _remove(self) -> None:
        """The file goes first: SQLite throws a WAL away that has none, but would play it into another."""
        for end in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + end).unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among all processes in opening and removing the file."""
        path = self.path.with_name(self.path.name + "-lock")
        files.prepare(path)
        try:
            descriptor = os.open(path, os.O_RDWR)
            try:
                _lock(descriptor, path)
                yield
            finally:
                os.close(descriptor)
        except OSError as e:
            raise ReadOnly(f"cannot keep a search index at {self.path}: {e.strerror}") from e

    def _named(self, error: apsw.Error) -> HoldfastError | None:
        """The error as ours if it is about the world around the file; None if it is about the file."""
        match error:
            case apsw.FullError():
                return DiskFull(f"the disk is full: the search index {self.path} cannot grow; no message is affected")
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
