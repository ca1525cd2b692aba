"""Opens PostgreSQL connections with the settings that durability needs, and translates PostgreSQL's errors."""

import logging
import os
import re
import socket
import threading
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
"""How long a write waits for a lock, or for an unreachable server, before it fails."""
IDLE_SECONDS = 30
"""How long the server keeps an idle transaction open: its worker was cut off, and others wait for its locks."""
CONNECT_SECONDS = 10
"""The longest time to connect. A URL can set a shorter limit, not a longer one or none."""
OLDEST = 13
PREPARE_AFTER = 2
"""How often a statement runs on a connection before it is prepared."""

GONE = ("08", "57P", "25P03")
"""SQLSTATE prefixes of a server that is unreachable or has closed the connection."""
CROWDED = "53300"
CROWDED_WORDS = ("too many clients", "remaining connection slots are reserved", "too many connections for")
READ_ONLY = "25006"
CLASHES = ("40001", "40P01")
"""SQLSTATEs of a serialization failure and a deadlock."""
DUPLICATE = "23505"
"""May also be a conflict, over a row that did not exist when it was read."""


def redact_url(url: str) -> str:
    """The URL without credentials and options."""
    place = url.partition("://")[2].rpartition("@")[2].partition("?")[0]
    return f"postgresql://{place}"


def is_gone(error: psycopg.Error) -> bool:
    """Whether the connection to the server was lost. The outcome of the transaction is then unknown."""
    if error.sqlstate is None:
        return isinstance(error, psycopg.OperationalError)
    return error.sqlstate.startswith(GONE)


def is_crowded(error: psycopg.Error) -> bool:
    """Whether the server has no connections left. During connecting, only the message says so."""
    return error.sqlstate == CROWDED or any(words in str(error) for words in CROWDED_WORDS)


def translate(error: psycopg.Error, where: str) -> Exception:
    """Our error for an error of PostgreSQL. The only place that decides this. A violated constraint is a bug."""
    said = str(error).strip().partition("\n")[0]
    match error.sqlstate or "":
        case "53100":
            return DiskFull(f"the disk of {where} is full; nothing was saved; free some space and try again")
        case "25006" | "42501":
            return ReadOnly(f"cannot write to {where}: {said}")
        case "55P03":
            return Unavailable(f"another worker has locked {where} for {BUSY_SECONDS:.0f} s; try again later")
        case "53300" | "53200" | "57014" | "40001" | "40P01":
            return Unavailable(f"{where} is too busy ({said}); try again later")
        case "28000" | "28P01" | "3D000" | "3F000":
            return Unsupported(f"cannot open {where}: {said}")
        case "XX001" | "XX002":
            return Corrupt(f"{where} is damaged ({said}); run 'holdfast doctor', then restore your newest backup")
        case "54000" | "22001" | "22P05":
            return Invalid(f"too large, or not text that the store can contain: {said}")
        case code if code.startswith(("22", "23", "42")):
            return AssertionError(f"the query or its values do not match the schema: {said}")
        case code if code.startswith(GONE):
            return Unavailable(f"{where} is unavailable ({said}); try again later")
        case "":
            return _translate_without_code(error, said, where)
        case _:
            return IoFailed(f"the store {where} failed ({said}); treat the write as not saved")


def _translate_without_code(error: psycopg.Error, said: str, where: str) -> Exception:
    """Errors that the client library raises itself."""
    match error:
        case psycopg.DataError():
            return Invalid(f"only message texts can contain NUL: {said}")
        case psycopg.OperationalError():
            return Unavailable(f"cannot reach {where}: {said}")
        case _:
            return AssertionError(f"the query or its values do not match the driver: {said}")


def translate_any(error: BaseException, where: str) -> BaseException:
    """Our error for an error of PostgreSQL, with its cause. Other errors are returned unchanged."""
    match error:
        case UnicodeEncodeError():
            ours: Exception = Invalid(
                "a name must be UTF-8 text without lone surrogates; only the texts of messages may contain other bytes"
            )
        case psycopg.Error():
            ours = translate(error, where)
        case _:
            return error
    ours.__cause__ = error
    return ours


class _BooleanLoader(IntLoader):
    """Booleans as in SQLite: 1 or 0."""

    def load(self, data: Any) -> int:
        return int(bytes(data) == b"t")


def named(query: str) -> str:
    """The SQL of a named query, in psycopg's syntax."""
    return queries.for_psycopg()[query]


def connect(url: str, *, busy_seconds: float = BUSY_SECONDS) -> Link:
    """An autocommit connection. Raises psycopg's errors.

    The limit is CONNECT_SECONDS to connect, and as much again to set up the connection.
    """
    link = psycopg.connect(_conninfo(url), autocommit=True, prepare_threshold=PREPARE_AFTER)
    limit = threading.Timer(CONNECT_SECONDS, break_connection, [link])
    limit.daemon = True
    limit.start()
    try:
        link.adapters.register_dumper(int, Int8Dumper)
        link.adapters.register_loader("numeric", IntLoader)
        link.adapters.register_loader("bool", _BooleanLoader)
        link.add_notice_handler(lambda notice: log.debug("notice of PostgreSQL: %s", notice.message_primary))
        timeouts = {"lock_timeout": f"{busy_seconds:.0f}s", "idle_timeout": f"{IDLE_SECONDS}s"}
        link.execute(named("driver.configure"), timeouts, prepare=False)
    except BaseException:
        link.close()
        raise
    finally:
        limit.cancel()
    return link


def break_connection(link: Link) -> None:
    """Break a connection that another thread uses: its pending call fails."""
    with suppress(OSError, psycopg.Error), socket.socket(fileno=os.dup(link.fileno())) as line:
        line.shutdown(socket.SHUT_RDWR)


def _conninfo(url: str) -> str:
    """The URL with defaults: a writable server, a limit for connecting, and keepalives that detect a dead connection."""
    try:
        given = conninfo_to_dict(url)
    except psycopg.ProgrammingError as e:
        said = re.sub(r'"[^"]*"', '"…"', str(e).strip())  # what is quoted may be the password
        raise Invalid(f"invalid URL {redact_url(url)}: {said}") from e
    if "@" in str(given.get("host", "")):
        raise Invalid(f"the URL {redact_url(url)} has more than one @; write an @ in a password as %40")
    several = "," in str(given.get("host", "")) + str(given.get("hostaddr", ""))
    asked = str(given.get("connect_timeout", ""))
    limit = int(asked) if asked.isdecimal() and 0 < int(asked) < CONNECT_SECONDS else CONNECT_SECONDS
    defaults: dict[str, str | int] = {
        "application_name": "holdfast",
        "keepalives_idle": 20,
        "keepalives_interval": 5,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
        **({"target_session_attrs": "read-write"} if several else {}),
    }
    missing = {name: value for name, value in defaults.items() if name not in given}
    return make_conninfo(url, client_encoding="utf8", connect_timeout=limit, **missing)


def check_server(link: Link, where: str) -> list[str]:
    """Raise Unsupported for a server that cannot be used; returns warnings about unsafe or slow settings."""
    row = link.execute(named("driver.get_server_facts")).fetchone()
    assert row is not None
    version, encoding, fsync, full_pages, standby, read_only, ctype = row
    if int(version) < OLDEST * 10_000:
        raise Unsupported(f"{where} is PostgreSQL {int(version) // 10_000}; Holdfast needs {OLDEST} or newer")
    if encoding != "UTF8":
        raise Unsupported(f"the database at {where} has the encoding {encoding}; Holdfast needs UTF8")
    warnings = []
    if fsync == "off" or full_pages == "off":
        warnings.append(f"{where} runs with fsync or full_page_writes off: a power cut can lose acknowledged writes")
    if standby or read_only == "on":
        warnings.append(f"{where} is a standby or read-only; writes fail")
    if ctype in ("C", "POSIX"):
        warnings.append(
            f"the database at {where} has LC_CTYPE {ctype}: searches for text in other scripts than Latin read every text; "
            "a database with LC_CTYPE C.UTF-8 finds it quickly"
        )
    return warnings
