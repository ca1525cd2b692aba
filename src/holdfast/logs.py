"""The log of the program itself: a private, bounded file without secrets. The terminal is shown warnings only."""

import fcntl
import logging
import os
import re
import sys
from collections.abc import Iterable
from pathlib import Path

from holdfast.settings import Settings

NAME = "holdfast.log"
MAX_BYTES = 5_000_000
"""Of one file; arbitrary. With the one before it the log never takes more than twice that."""
HIDDEN = "[hidden]"
SHORTEST_SECRET = 6
"""Shorter settings are words like any other; hiding those would make the log unreadable."""

# Keys by their shape (OpenAI and those who copy it, Anthropic, GitHub, Slack, AWS, Google, Telegram), and
# whatever stands behind a word that announces a secret.
SHAPES = (
    r"\bsk-[A-Za-z0-9_-]{8,}",
    r"\bgh[pousr]_[A-Za-z0-9]{20,}",
    r"\bgithub_pat_[A-Za-z0-9_]{20,}",
    r"\bxox[a-z]-[A-Za-z0-9-]{10,}",
    r"\bAKIA[A-Z0-9]{16}\b",
    r"\bAIza[A-Za-z0-9_-]{30,}",
    r"\b\d{8,10}:[A-Za-z0-9_-]{35}\b",
    r"(?i:(?<=bearer )|(?<=basic ))[A-Za-z0-9._~+/=-]{8,}",
    r"(?<=://)[^/\s:@]+:[^/\s@]+(?=@)",
)
ANNOUNCED = re.compile(
    r"""(?ix) ( (?:x-)?api[_-]?key | authorization | (?:access|refresh|bot|auth)[_-]?token | secret | password )
        (["']? \s* [:=] \s* ["']?) (?!bearer\s|basic\s|\[hidden\]) [^\s"',;&)}\]]+ """
)


class Redactor:
    """Takes secrets out of a text: those it was told, and all that look like one."""

    def __init__(self, secrets: Iterable[str]) -> None:
        known = sorted({text for text in secrets if len(text) >= SHORTEST_SECRET}, key=len, reverse=True)
        self._pattern = re.compile("|".join([*map(re.escape, known), *SHAPES]))

    def __call__(self, text: str) -> str:
        return ANNOUNCED.sub(rf"\1\2{HIDDEN}", self._pattern.sub(HIDDEN, text))


class Lines(logging.Formatter):
    """One record a line but for tracebacks, without secrets and without bytes that steer a terminal."""

    def __init__(self, form: str, redact: Redactor) -> None:
        super().__init__(form)
        self._redact = redact

    def formatMessage(self, record: logging.LogRecord) -> str:  # noqa: N802 - the name is logging's
        return _visible(super().formatMessage(record))

    def format(self, record: logging.LogRecord) -> str:
        return self._redact(super().format(record))


def _visible(text: str) -> str:
    if text.isprintable():
        return text
    return "".join(letter if letter.isprintable() else ascii(letter)[1:-1] for letter in text)


class PrivateFile(logging.Handler):
    """Appends to a file that only its owner can read, and sets it aside as `.1` when it is full.

    Several processes share the file: each line is one write, and a file that another process has set aside
    is noticed. A log that cannot be written is not worth stopping for: its lines are dropped, and that is said once.
    """

    def __init__(self, path: Path, max_bytes: int = MAX_BYTES) -> None:
        super().__init__()
        self._path = path
        self._max_bytes = max_bytes
        self._descriptor: int | None = None
        self._has_complained = False

    def emit(self, record: logging.LogRecord) -> None:
        try:
            line = f"{self.format(record)}\n".encode("utf-8", "backslashreplace")
            os.write(self._file(), line)
        except OSError as e:
            if not self._has_complained:
                self._has_complained = True
                print(f"holdfast: cannot write to {self._path}: {e.strerror}", file=sys.stderr)

    def _file(self) -> int:
        """The descriptor of the file that has the name now and has room."""
        if self._descriptor is None or self._is_set_aside(self._descriptor):
            self._open()
        assert self._descriptor is not None, "it has just been opened"
        if os.fstat(self._descriptor).st_size >= self._max_bytes:
            fcntl.flock(self._descriptor, fcntl.LOCK_EX)
            if not self._is_set_aside(self._descriptor):
                self._path.replace(self._path.with_name(self._path.name + ".1"))
            self._open()
        return self._descriptor

    def _is_set_aside(self, descriptor: int) -> bool:
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


class Terminal(logging.Handler):
    """Warnings for the person in front of the terminal, whatever standard error is at the time."""

    def emit(self, record: logging.LogRecord) -> None:
        print(self.format(record), file=sys.stderr, flush=True)


def set_up(settings: Settings) -> None:
    """Send records to `<home>/logs/holdfast.log`, and warnings to standard error as well. Replaces what was set up before."""
    take_down()
    redact = Redactor(settings.secrets())
    file = PrivateFile(settings.home / "logs" / NAME)
    file.setFormatter(Lines("%(asctime)s %(levelname)s %(process)d %(name)s %(message)s", redact))
    shown = Terminal(logging.WARNING)
    shown.setFormatter(Lines("%(levelname)s: %(message)s", redact))
    for handler in (file, shown):
        logging.getLogger().addHandler(handler)
    logging.getLogger("holdfast").setLevel(settings.log.upper())


def take_down() -> None:
    """Send records nowhere again."""
    root = logging.getLogger()
    for handler in [handler for handler in root.handlers if isinstance(handler, PrivateFile | Terminal)]:
        root.removeHandler(handler)
        handler.close()
