"""The search index as a file: opened, filled, asked, and thrown away when it is damaged.

It holds nothing that is not in the store, so nothing is ever repaired: a file that cannot be read, or
is of an older format, or of another store, is removed and a new one begun. Other processes may have it open. They keep
the removed file until they look at the path again, which they do before each use, and then take the
new one. Three rules make that safe: whoever opens or removes it holds a lock beside it; nobody
removes a file but the one he found bad; and closing never touches the WAL's name, which may by then
belong to the next file. All methods block and belong to one thread.
"""

import fcntl
import os
import time
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TypeVar, cast

import apsw
import msgspec

from holdfast.model.errors import DiskFull, HoldfastError, ReadOnly, Unavailable, Unsupported
from holdfast.store import files, queries
from holdfast.store.database import Value
from holdfast.store.grams import MAX_GRAMS, Needle, all_of, any_of, badge, expression, indexed, quoted, term_range

T = TypeVar("T")

FORMAT = 1
"""Raised whenever older files would miss something: other grams, other words of an event."""
BUSY_SECONDS = 5.0
"""How long to wait for another process that fills the same index; a batch takes it about one."""
LOCK_SECONDS = 10.0
MAX_NEEDLES = 16
"""How many needles the index is asked for; the comparison looks at all."""
FEW_TERMS = 256
"""A short needle that begins more terms than this is left to the comparison, if another needle narrows the search."""


class Damaged(Exception):
    """The file was bad and a new, empty one is in its place."""


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


class SearchFile:
    def __init__(self, path: Path) -> None:
        self.path = path
        self._queries = queries.load()
        self._connection: apsw.Connection | None = None
        self._inode = 0

    def state(self) -> State | None:
        """How far the index is; None if it is new."""
        return self._use(self._state)

    def begin(self, store_id: str) -> State:
        """Make an empty index one of this store; if it is begun already, say how far it is."""

        def work(connection: apsw.Connection) -> State:
            state = self._state(connection)
            if state is None:
                state = State(store_id, 0, "")
                self._settle(connection, state)
            return state

        return self._use(work, writes=True)

    def add(self, pieces: Sequence[Piece], before: State, after: State) -> bool:
        """Index these events, which lead from one state to the next; False if another process has moved on from there."""

        def work(connection: apsw.Connection) -> bool:
            if self._state(connection) != before:
                return False
            connection.executemany(self._queries["search.add"], map(_row, pieces))
            self._settle(connection, after)
            return True

        return self._use(work, writes=True)

    def forget(self, positions: Sequence[int]) -> None:
        """Drop events that the store no longer has."""

        def work(connection: apsw.Connection) -> None:
            connection.executemany(self._queries["search.forget"], [{"position": each} for each in positions])

        self._use(work, writes=True)

    def plan(self, wanted: Sequence[Needle], session_id: str | None) -> str | None:
        """What to ask for candidates; None if no event can fit."""
        return self._use(lambda connection: self._plan(connection, wanted, session_id))

    def candidates(self, plan: str, *, before: int, count: int) -> list[int]:
        """Positions of events that may fit, newest first: all that fit are among them."""
        params: dict[str, Value] = {"expression": plan, "before": before, "count": count}
        return self._use(lambda connection: cast("list[int]", self._column(connection, "search.candidates", params)))

    def renew(self) -> None:
        """Remove the file, unless another process has done so meanwhile, and begin a new one."""
        with self._locked():
            if self._is_current():
                self._remove()
            self.close()
            self._open()

    def close(self) -> None:
        if self._connection is not None:
            self._connection.close(True)
            self._connection = None

    # What is done on the connection.

    def _state(self, connection: apsw.Connection) -> State | None:
        rows = connection.execute(self._queries["search.state"]).fetchall()
        return State(*rows[0]) if rows else None

    def _settle(self, connection: apsw.Connection, state: State) -> None:
        connection.execute(self._queries["search.settle"], msgspec.structs.asdict(state))

    def _column(self, connection: apsw.Connection, query: str, params: Mapping[str, Value]) -> list[Value]:
        return [cast("Value", row[0]) for row in connection.execute(self._queries[query], params).fetchall()]

    def _plan(self, connection: apsw.Connection, wanted: Sequence[Needle], session_id: str | None) -> str | None:
        long = sorted((needle for needle in wanted if not needle.is_short), key=_length, reverse=True)[:MAX_NEEDLES]
        short = sorted((needle for needle in wanted if needle.is_short), key=_length, reverse=True)[:MAX_NEEDLES]
        parts = [expression(needle, MAX_GRAMS // len(long)) for needle in long]
        for needle in short:
            terms = self._beginnings(connection, needle, FEW_TERMS + 1)
            if not terms:
                return None
            if len(terms) <= FEW_TERMS:
                parts.append(any_of(terms))
        if not parts:
            parts = [any_of(self._beginnings(connection, short[0], -1))]
        if session_id is not None:
            parts.append(quoted(badge(session_id)))
        return all_of(parts)

    def _beginnings(self, connection: apsw.Connection, needle: Needle, count: int) -> list[str]:
        """For each spelling of a short needle the terms that begin with it; of one that is not short, its trigrams."""
        found: list[str] = []
        for form in needle.forms:
            if Needle((form,)).is_short:
                low, high = term_range(form)
                terms = self._column(connection, "search.terms", {"low": low, "high": high, "count": count})
                found += [quoted(cast("str", term)) for term in terms]
            else:
                found.append(expression(Needle((form,))))
        return found

    # The file and its connection.

    def _use(self, work: Callable[[apsw.Connection], T], *, writes: bool = False) -> T:
        """Run the work on the file that is at the path now, in one transaction. Raises Damaged when that cannot be read."""
        try:
            connection = self._current()
            with _transaction(connection, "BEGIN IMMEDIATE" if writes else "BEGIN"):
                return work(connection)
        except apsw.Error as e:
            known = self._named(e)
            if known is not None:
                raise known from e
            self.renew()
            raise Damaged(f"the search index {self.path} was damaged ({e}) and is begun anew") from e

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
        """Open the file, or a new one if there is none or none of use."""
        try:
            usable = self._connect()
        except apsw.Error as e:
            if (known := self._named(e)) is not None:
                raise known from e
            usable = False
        if not usable:
            self.close()
            self._remove()
            self._connect()

    def _connect(self) -> bool:
        """Open the file, filling in the schema if it is new; False if it is of an older format."""
        if not self.path.exists():
            self._remove()  # a WAL without its file would be taken for the new file's
        files.prepare(self.path)
        self._connection = connection = apsw.Connection(str(self.path), flags=apsw.SQLITE_OPEN_READWRITE)
        self._inode = self.path.stat().st_ino
        connection.set_busy_timeout(int(BUSY_SECONDS * 1000))
        persist = array("i", [1])
        connection.file_control("main", apsw.SQLITE_FCNTL_PERSIST_WAL, persist.buffer_info()[0])
        connection.execute(self._queries["search.settings"]).fetchall()
        found = cast("int", connection.pragma("user_version"))
        if found > FORMAT:
            raise Unsupported(
                f"the search index {self.path} was made by a newer release; use that one, or remove the file: "
                "it is built anew from the store"
            )
        if found == 0:
            with _transaction(connection, "BEGIN IMMEDIATE"):
                connection.execute(self._queries["search.create"]).fetchall()
        return found in (0, FORMAT)

    def _remove(self) -> None:
        """The file first: SQLite ignores a WAL that has none, but would replay it into a later one."""
        for end in ("", "-wal", "-shm"):
            self.path.with_name(self.path.name + end).unlink(missing_ok=True)

    @contextmanager
    def _locked(self) -> Iterator[None]:
        """Alone among all processes in opening and removing."""
        path = self.path.with_name(self.path.name + "-lock")
        files.prepare(path)
        descriptor = os.open(path, os.O_RDWR)
        try:
            _lock(descriptor, path)
            yield
        finally:
            os.close(descriptor)

    def _named(self, error: apsw.Error) -> HoldfastError | None:
        """The error as ours if it is about the world around the file; None if the file itself is bad."""
        match error:
            case apsw.FullError():
                return DiskFull(f"the disk is full: the search index {self.path} cannot grow; messages are not affected")
            case apsw.ReadOnlyError() | apsw.PermissionsError() | apsw.CantOpenError() | apsw.AuthError():
                return ReadOnly(f"cannot write to the search index {self.path}: {error}")
            case apsw.BusyError() | apsw.LockedError():
                return Unavailable(f"the search index {self.path} is locked by another process; try again when it is done")
            case _:
                return None


def _row(piece: Piece) -> dict[str, Value]:
    return {"position": piece.position, "text": indexed(piece.text), "session": badge(piece.session_id)}


def _length(needle: Needle) -> int:
    return min(len(form) for form in needle.forms)


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
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            if time.monotonic() > limit:
                raise Unavailable(f"another process has held {path} for {LOCK_SECONDS:.0f} s") from e
            time.sleep(0.01)
        else:
            return
