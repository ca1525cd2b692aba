"""The log of the program: a private file of limited size without secrets. The terminal shows only warnings."""

import copy
import fcntl
import logging
import os
import re
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from functools import cached_property
from pathlib import Path

from holdfast.settings import Settings

NAME = "holdfast.log"
MAX_BYTES = 5_000_000
"""Maximum size of the file; arbitrary. One rotated file of the same size is kept."""
HIDDEN = "[hidden]"
SHORTEST_SECRET = 6
"""Shorter settings are often ordinary words; redacting those would make the log unreadable."""

# Formats of keys: our own, OpenAI and compatible, Anthropic, GitHub, Slack, AWS, Google, Telegram.
KEY_FORMATS = (
    r"\bsk-[A-Za-z0-9_-]{8,}",
    r"\bhf[ku]-[A-Za-z0-9_-]{8,}",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}",
    r"\bgithub_pat_[A-Za-z0-9_]{20,}",
    r"\bxox[a-z]-[A-Za-z0-9-]{10,}",
    r"\bAKIA[A-Z0-9]{16}\b",
    r"\bAIza[A-Za-z0-9_-]{30,}",
    r"\b\d{8,10}:[A-Za-z0-9_-]{35}\b",
    r"(?i:(?<=bearer )|(?<=basic ))[A-Za-z0-9._~+/=-]{8,}",
    r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)",
)
# A value after a name such as `password=`.
LABELLED = r"""(?ix) ( (?:x-)?api[_-]?key | authorization | (?:access|refresh|bot|auth)[_-]?token | secret | password )
        (["']? \s* [:=] \s* ["']?) (?!bearer\s|basic\s|\[hidden\]) [^\s"',;&)}\]]+ """

MARKS = (
    *("sk-", "hfk-", "hfu-", "ghp_", "gho_", "ghu_", "ghs_", "ghr_", "github_pat_", "xox", "akia", "aiza"),
    *("bearer ", "basic ", "@", "key", "authorization", "token", "secret", "password"),
)
"""In lower case: each match of the expressions above contains one of these, or what `AFTER_COLON` finds."""
AFTER_COLON = re.compile(r":[A-Za-z0-9_-]{35}")


class Redactor:
    """Replaces known secrets in a text, and everything that has the format of one."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = sorted({text for text in secrets if len(text) >= SHORTEST_SECRET}, key=len, reverse=True)
        self._expression = "|".join([*map(re.escape, known), *KEY_FORMATS])
        self._marks = (*MARKS, *(text.lower() for text in known))

    def __call__(self, text: str) -> str:
        if not self._may_contain_secret(text):
            return text
        return re.sub(LABELLED, rf"\1\2{HIDDEN}", self._pattern.sub(HIDDEN, text))

    def _may_contain_secret(self, text: str) -> bool:
        """Look for parts of secrets, twenty times as fast as the expressions. Only ASCII has one lower case."""
        if not text.isascii():
            return True
        lower = text.lower()
        return any(mark in lower for mark in self._marks) or AFTER_COLON.search(text) is not None

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self._expression)  # at the first line: most commands log nothing


class LogFormatter(logging.Formatter):
    """One line per record, except for tracebacks; without secrets and terminal control characters."""

    def __init__(self, form: str, redact: Redactor) -> None:
        super().__init__(form)
        self._redact = redact

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        return _escape(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return self._redact(super().format(record))


class ShortLogFormatter(LogFormatter):
    """One line per record: an exception as its type and message, because the file has the traceback."""

    def format(self, record: logging.LogRecord) -> str:
        error = record.exc_info[1] if record.exc_info else None
        if error is None:
            return super().format(record)
        short = copy.copy(record)
        short.msg, short.args = f"{record.getMessage()}: {type(error).__name__}: {error}; see the log file", ()
        short.exc_info = short.exc_text = None
        return super().format(short)


def _escape(text: str) -> str:
    """Escape characters that are not printable."""
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


class PrivateFileHandler(logging.Handler):
    """Appends to a file that only its owner can read, and renames it to `.1` when it is full.

    Several processes share the file: each line is one write, and each process notices that another one has rotated the
    file. If the file cannot be written, lines are dropped, with one message on standard error.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        super().__init__()
        self._path = path
        self._max_bytes = max_bytes
        self._descriptor: int | None = None
        self._has_warned = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode("utf-8", "backslashreplace")
            os.write(self._file(), line)
        except OSError as e:
            if not self._has_warned:
                self._has_warned = True
                print(f"holdfast: cannot write to {self._path}: {e.strerror}", file=sys.stderr)

    def _file(self) -> int:
        """The descriptor of the current file, rotated if it is full."""
        if self._descriptor is None or self._is_rotated(self._descriptor):
            self._open()
        assert self._descriptor is not None, "it has just been opened"
        if os.fstat(self._descriptor).st_size >= self._max_bytes:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            if not self._is_rotated(self._descriptor):
                self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._open()
        return self._descriptor

    def _is_rotated(self, descriptor: int) -> bool:
        try:
            return not os.path.samestat(os.fstat(descriptor), self._path.stat())
        except FileNotFoundError:
            return True

    def _open(self) -> None:
        self.close_file()
        self._path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)

    def close_file(self) -> None:
        if self._descriptor is not None:
            os.close(self._descriptor)
            self._descriptor = None

    def close(self) -> None:
        self.close_file()
        super().close()


class TerminalHandler(logging.Handler):
    """Prints warnings to the current standard error, or passes them to `sink`."""

    sink: Callable[[str], object] | None = None

    def emit(self, record: logging.LogRecord) -> None:
        if self.sink is None:
            print(self.format(record), file=sys.stderr, flush=True)
        else:
            self.sink(self.format(record))


def add_handlers(settings: Settings) -> None:
    """Send records to `<home>/logs/holdfast.log`, and warnings also to standard error. Replaces earlier handlers."""
    remove_handlers()
    redact = Redactor(settings.secrets())
    file = PrivateFileHandler(settings.home / "logs" / NAME)
    file.setFormatter(LogFormatter("%(asctime)s %(levelname)s %(process)d %(name)s %(message)s", redact))
    terminal = TerminalHandler(logging.WARNING)
    terminal.setFormatter(ShortLogFormatter("%(levelname)s: %(message)s", redact))
    for handler in (file, terminal):
        logging.getLogger().addHandler(handler)
    logging.getLogger("holdfast").setLevel(settings.log.upper())


@contextmanager
def redirect_warnings(sink: Callable[[str], object]) -> Iterator[None]:
    """Within the block, pass warnings to `sink`, in any thread, instead of printing them."""
    handlers = [handler for handler in logging.getLogger().handlers if isinstance(handler, TerminalHandler)]
    for handler in handlers:
        handler.sink = sink
    try:
        yield
    finally:
        for handler in handlers:
            handler.sink = None


def remove_handlers() -> None:
    """Remove the handlers of `add_handlers`."""
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, PrivateFileHandler | TerminalHandler)]:
        root.removeHandler(handler)
        handler.close()
