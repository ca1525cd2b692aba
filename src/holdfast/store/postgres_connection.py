"""A connection to PostgreSQL with the settings every promise rests on, and PostgreSQL's errors as ours."""

import hashlib
import logging
import os
import select
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from typing import Any, cast

import psycopg
from psycopg.conninfo import conninfo_to_dict, make_conninfo
from psycopg.types.numeric import Int8Dumper, IntLoader

from holdfast.model.errors import (
    Corrupt,
    DiskFull,
    Invalid,
    IoFailed,
    ReadOnly,
    Unavailable,
    Unsupported,
)
from holdfast.store import queries
from holdfast.store.database import Row, Value

log = logging.getLogger(__name__)

Link = psycopg.Connection[tuple[Any, ...]]
Enter = Callable[[Value], None]
"""Told, before the first statement of a write, what the write is about."""

BUSY_SECONDS = 60.0
"""How long a writer waits for another, or for a server that is away, before it gives up and says so."""
IDLE_SECONDS = 30
"""How long the server keeps a transaction whose worker says nothing: it was cut off, and others wait."""
CONNECT_SECONDS = 10
OLDEST = 13
MANY = 1_000
"""Statements sent without looking at their answers."""
PREPARE_AFTER = 2
"""How often a statement is run on a connection before it is prepared there."""

GONE = ("08", "57P", "25P03")
"""SQLSTATEs of a server that is away or has hung up, by their beginnings."""
CROWDED = "53300"
CROWDED_WORDS = ("too many clients", "remaining connection slots are reserved", "too many connections for")
READ_ONLY = "25006"
CLASHES = ("40001", "40P01")
"""Two transactions in each other's way."""
DUPLICATE = "23505"
"""May be a clash too, over a row that was looked for and not there yet."""


def shown(url: str) -> str:
    """The address as it may be shown."""
    place = url.partition("://")[2].partition("?")[0].rpartition("@")[2]
    return f"postgresql://{place}"


def is_gone(error: psycopg.Error) -> bool:
    """Whether the server, or the way to it, went away; nothing is said about what was under way."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError)
    return error.sqlstate.startswith(GONE)


def is_crowded(error: psycopg.Error) -> bool:
    """Whether the server has no connections left. One that is refused at the door tells the reason in words only."""
    return error.sqlstate == CROWDED or any(words in str(error) for words in CROWDED_WORDS)


def translate(error: psycopg.Error, where: str) -> Exception:
    """PostgreSQL's error as ours; the one place where that is decided. A broken constraint is a bug of the work."""
    said = str(error).strip().partition("\n")[0]
    match error.sqlstate or "":
        case "53100":
            return DiskFull(f"the disk of {where} is full: nothing was saved; make room and try again")
        case "25006" | "42501":
            return ReadOnly(f"cannot write to {where}: {said}")
        case "55P03":
            return Unavailable(f"{where} has been locked by another worker for {BUSY_SECONDS:.0f} s; try again later")
        case "53300" | "53200" | "57014" | "40001" | "40P01":
            return Unavailable(f"{where} is too busy ({said}); try again later")
        case "28000" | "28P01" | "3D000" | "3F000":
            return Unsupported(f"cannot open {where}: {said}")
        case "XX001" | "XX002":
            return Corrupt(f"{where} is damaged ({said}); run 'holdfast doctor', and restore your newest backup")
        case "54000" | "22001" | "22P05":
            return Invalid(f"too large, or no text that the store can hold: {said}")
        case code if code.startswith(("22", "23", "42")):
            return AssertionError(f"the work does not fit the schema: {said}")
        case code if code.startswith(GONE):
            return Unavailable(f"{where} is away ({said}); try again later")
        case "":
            return _translate_without_code(error, said, where)
        case _:
            return IoFailed(f"the store {where} failed ({said}): what was being written does not count as saved")


def _translate_without_code(error: psycopg.Error, said: str, where: str) -> Exception:
    """What the client's library says by itself."""
    match error:
        case psycopg.DataError():
            return Invalid(f"only message texts may hold NUL: {said}")
        case psycopg.OperationalError():
            return Unavailable(f"cannot reach {where}: {said}")
        case _:
            return AssertionError(f"the work does not fit the driver: {said}")


def translated(error: BaseException, where: str) -> BaseException:
    """Ours for PostgreSQL's, with its cause; any other error stays what it is."""
    match error:
        case UnicodeEncodeError():
            ours: Exception = Invalid(
                "a name with lone surrogates cannot be kept: only message texts may hold bytes that are no text"
            )
        case psycopg.Error():
            ours = translate(error, where)
        case _:
            return error
    ours.__cause__ = error
    return ours


class _Claim(IntLoader):
    """A truth as SQLite tells it: 1 or 0."""

    def load(self, data: Any) -> int:
        return int(bytes(data) == b"t")


def named(query: str) -> str:
    """A query by its name: all there are stand in files of ours."""
    return queries.for_psycopg()[query]


@contextmanager
def piped(link: Link) -> Iterator[psycopg.Pipeline]:
    """Statements are sent as they come; whoever wants an answer waits for those to all before it as well."""
    with link.pipeline() as pipeline:
        try:
            yield pipeline
        except BaseException:
            with suppress(psycopg.Error):  # the first error is the one that counts
                pipeline.sync()
            raise


def _flush(link: Link) -> None:
    """Send all that was given to the connection.

    In a pipeline, psycopg 3.3 goes over to waiting for the answer when it has no further statement to give, even if
    what it was given does not fit the socket's buffer: the answer to a message of some hundred kilobytes would never
    come. Can go when a large message in a pipeline no longer hangs without it.
    """
    while link.pgconn.flush():
        readable, _, _ = select.select([link], [link], [])
        if readable:
            link.pgconn.consume_input()


def connect(url: str, *, busy_seconds: float = BUSY_SECONDS) -> Link:
    """A connection that begins and ends no transaction by itself. Raises psycopg's errors."""
    link = psycopg.connect(_conninfo(url), autocommit=True, prepare_threshold=PREPARE_AFTER)
    try:
        link.adapters.register_dumper(int, Int8Dumper)
        link.adapters.register_loader("numeric", IntLoader)
        link.adapters.register_loader("bool", _Claim)
        link.add_notice_handler(lambda notice: log.debug("PostgreSQL says: %s", notice.message_primary))
        timeouts = {"lock_timeout": f"{busy_seconds:.0f}s", "idle_timeout": f"{IDLE_SECONDS}s"}
        link.execute(named("driver.settings"), timeouts, prepare=False)
    except BaseException:
        link.close()
        raise
    return link


def shut(link: Link) -> None:
    """Break a connection that another thread uses: whoever waits for an answer there learns that none will come."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(link.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


def _conninfo(url: str) -> str:
    """The address with what is not said in it: to whom, for how long, and how soon a dead line is noticed."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError as e:
        raise Invalid(f"the address {shown(url)} cannot be understood: {str(e).strip()}") from e
    several = "," in str(given.get("host", "")) + str(given.get("hostaddr", ""))
    defaults: dict[str, str | int] = {
        "application_name": "holdfast",
        "connect_timeout": CONNECT_SECONDS,
        "keepalives_idle": 20,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
        **({"target_session_attrs": "read-write"} if several else {}),
    }
    return make_conninfo(url, client_encoding="utf8", **{k: v for k, v in defaults.items() if k not in given})


def refuse_unfit(link: Link, where: str) -> list[str]:
    """Raise Unsupported for a server that cannot keep a store; what is allowed but unwise, in words."""
    row = link.execute(named("driver.about")).fetchone()
    assert row is not None
    version, encoding, fsync, full_pages, standby, read_only, ctype = row
    if int(version) < OLDEST * 10_000:
        raise Unsupported(f"{where} is PostgreSQL {int(version) // 10_000}; Holdfast needs {OLDEST} or newer")
    if encoding != "UTF8":
        raise Unsupported(f"the database at {where} has the encoding {encoding}; Holdfast needs one with UTF8")
    warnings = []
    if fsync == "off" or full_pages == "off":
        warnings.append(
            f"{where} runs with fsync or full_page_writes off: a power cut there loses what was acknowledged"
        )
    if standby or read_only == "on":
        warnings.append(f"{where} is a standby or read-only: nothing can be written there")
    if ctype in ("C", "POSIX"):
        warnings.append(
            f"the database at {where} has the character type {ctype}: words in other scripts than Latin are found, "
            "but by reading every text; one made with LC_CTYPE C.UTF-8 finds them quickly"
        )
    return warnings


class PostgresTransaction:
    """Named queries on one connection, inside a transaction that somebody else begins and ends.

    What a write names it also locks, until its end: the functions were written for a store with one writer at a
    time, and look before they act. Two that name the same session, channel, alias, process or key wait for each
    other; all others go side by side. Each statement sees what was committed before it, so whoever had to wait sees
    what the other did. A worker that is named is locked only against being buried meanwhile.
    """

    def __init__(self, link: Link, pipeline: psycopg.Pipeline, *, writes: bool, enter: Enter | None = None) -> None:
        self._link = link
        self._pipeline = pipeline
        self._writes = writes
        self._enter = enter
        self._held: set[tuple[Value, bool]] = set()
        self.topics: set[str] = set()

    def one(self, query: str, **params: Value) -> Row | None:
        rows = self.all(query, **params)
        return rows[0] if rows else None

    def all(self, query: str, **params: Value) -> list[Row]:
        cursor = self._execute(query, params)
        self._pipeline.sync()  # else the server takes a worker that says nothing more for busy, and waits for ever
        return cast("list[Row]", cursor.fetchall())

    def run(self, query: str, **params: Value) -> int:
        cursor = self._execute(query, params)
        self._pipeline.sync()
        return cursor.rowcount

    def many(self, query: str, rows: Iterable[Mapping[str, Value]]) -> None:
        for number, row in enumerate(rows, 1):
            self._execute(query, row)
            if number % MANY == 0:
                self._pipeline.sync()

    def notify(self, topic: str) -> None:
        self.topics.add(topic)

    def listed(self, query: str, **params: Value | list[str]) -> list[Row]:
        """As `all`, for a query of this driver's own: lists may be given, and it is planned for just these values."""
        return cast("list[Row]", self._link.execute(named(query), params, prepare=False).fetchall())

    def _execute(self, query: str, params: Mapping[str, Value]) -> psycopg.Cursor[tuple[Any, ...]]:
        if self._writes:
            self._lock(query, params)
        cursor = self._link.execute(named(query), params)
        _flush(self._link)
        return cursor

    def _lock(self, query: str, params: Mapping[str, Value]) -> None:
        names = locks(query, params)
        if self._enter is not None:
            self._enter(next((params[name] for name, alone in names if alone), None))
            self._enter = None
        for name, alone in names:
            value = params[name]
            if (value, alone) in self._held or (value, True) in self._held:
                continue
            self._held.add((value, alone))
            high, low = lock_key(value)
            self._link.execute(named("driver.lock" if alone else "driver.lock_shared"), {"high": high, "low": low})


NAMES = ("session", "id", "parent", "to", "channel", "alias", "key", "schedule", "person")
"""Parameters that name what a write is about."""
UNLOCKED = ("workers.register", "workers.beat")
"""One statement each, and a heartbeat must not wait."""
BURIALS = ("workers.end", "workers.clear")


def locks(query: str, params: Mapping[str, Value]) -> list[tuple[str, bool]]:
    """Which of the parameters are locked, and whether alone; in an order in which nobody waits while he holds a worker."""
    if query in UNLOCKED:
        return []
    if query.startswith("workers."):
        return [("id", query in BURIALS)] if "id" in params else []
    return [(name, True) for name in NAMES if params.get(name)] + [("worker", False)] * bool(params.get("worker"))


def lock_key(value: Value) -> tuple[int, int]:
    """The two whole numbers that stand for a name, the same in every process."""
    digest = hashlib.blake2b(str(value).encode("utf-8"), digest_size=8).digest()
    return int.from_bytes(digest[:4], "big", signed=True), int.from_bytes(digest[4:], "big", signed=True)
