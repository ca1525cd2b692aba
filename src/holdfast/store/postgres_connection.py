"""A connection to PostgreSQL with the settings every promise rests on, and PostgreSQL's errors as ours."""

import logging
import os
import re
import socket
from contextlib import suppress
from typing import Any

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

log = logging.getLogger(__name__)

Link = psycopg.Connection[tuple[Any, ...]]

BUSY_SECONDS = 60.0
"""How long a writer waits for another, or for a server that is away, before it gives up and says so."""
IDLE_SECONDS = 30
"""How long the server keeps a transaction whose worker says nothing: it was cut off, and others wait."""
CONNECT_SECONDS = 10
OLDEST = 13
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
    place = url.partition("://")[2].rpartition("@")[2].partition("?")[0]
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
        said = re.sub(r'"[^"]*"', '"…"', str(e).strip())  # what is quoted may be the password
        raise Invalid(f"the address {shown(url)} cannot be understood: {said}") from e
    if "@" in str(given.get("host", "")):
        raise Invalid(f"the address {shown(url)} has more than one @; write one in a password as %40")
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
