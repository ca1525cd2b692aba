"""The results file: one line for each finished prompt, appended as they finish and sorted at the end.

The store is the truth, and this file is a copy of it. The next start discards what a crash left and writes the file
again, so that no line is torn, missing or duplicated. The file is replaced atomically.
"""

import fcntl
import json
import os
import stat
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path
from typing import Literal

import msgspec

from holdfast.interop.serialization import dump
from holdfast.model.errors import Busy, Conflict, Invalid
from holdfast.model.event import Usage
from holdfast.store.atomic_file import MODE, translate
from holdfast.store.durable_file import sync_folder


class PromptError(msgspec.Struct, frozen=True):
    """Why a prompt failed."""

    code: str
    message: str


class PromptResult(msgspec.Struct, frozen=True, kw_only=True):
    """One line of the file."""

    line: int
    id: str | int | None
    batch: str
    status: Literal["done", "failed"]
    session_id: str
    turn_id: str
    model: str
    text: str
    usage: Usage = Usage()
    error: PromptError | None = None
    meta: object = None

    def encoded(self) -> bytes:
        return dump(msgspec.to_builtins(self)).encode() + b"\n"


class _ResultHeader(msgspec.Struct, frozen=True):
    """The fields by which a line of ours is recognised."""

    line: int
    batch: str
    session_id: str


class ResultFile:
    """Open in one process at a time. Raises Busy if another has it open, Invalid if it contains other data, or NotSaved."""

    def __init__(self, path: Path, batch: str) -> None:
        self.path = path.resolve()
        self._spans: dict[int, tuple[int, int]] = {}
        """The start and the length of each prompt's line."""
        self._end = 0
        try:
            self._file = _open(self.path)
            try:
                _refuse_foreign(self._file, self.path, batch)
            except BaseException:
                os.close(self._file)
                raise
        except OSError as e:
            raise translate(e, self.path) from e

    def begin(self, finished: Iterable[PromptResult]) -> None:
        """Replace the content of the file with these results."""
        self._replace((result.line, result.encoded()) for result in finished)

    def add(self, result: PromptResult) -> None:
        """Append one line; others see it at once."""
        assert result.line not in self._spans, "each prompt has one line"
        line = result.encoded()
        try:
            _write(self._file, line)
        except OSError as e:
            raise translate(e, self.path) from e
        self._record(result.line, len(line))

    def finish(self) -> None:
        """Sort the lines into the order of the prompts, durably."""
        self._refuse_changed()
        spans = sorted(self._spans.items())
        self._replace((number, os.pread(self._file, length, start)) for number, (start, length) in spans)

    def _refuse_changed(self) -> None:
        """Raise Conflict if another program has changed or replaced the file. A deleted file is created again."""
        ours = os.fstat(self._file)
        try:
            named = self.path.stat()
        except FileNotFoundError:
            named = ours
        if ours.st_size != self._end or (ours.st_dev, ours.st_ino) != (named.st_dev, named.st_ino):
            raise Conflict(
                f"another program changed {self.path}; it was left unchanged. All results are in the store: "
                "run the same command with another --out to write them"
            )

    def close(self) -> None:
        os.close(self._file)

    def _record(self, number: int, length: int) -> None:
        self._spans[number] = self._end, length
        self._end += length

    def _replace(self, lines: Iterable[tuple[int, bytes]]) -> None:
        """Replace the file atomically; the new one is locked before it is visible."""
        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")
        try:
            file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, MODE)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.fchmod(file, stat.S_IMODE(os.fstat(self._file).st_mode))
                spans, end = {}, 0
                for number, line in lines:
                    _write(file, line)
                    spans[number] = end, len(line)
                    end += len(line)
                os.fsync(file)
                fresh.replace(self.path)
                sync_folder(self.path.parent)
            except BaseException:
                os.close(file)
                with suppress(OSError):
                    fresh.unlink()
                raise
        except OSError as e:
            raise translate(e, self.path) from e
        os.close(self._file)
        self._file, self._spans, self._end = file, spans, end


def _open(path: Path) -> int:
    """Open and lock the file."""
    if path.exists() and not path.is_file():
        raise Invalid(f"{path} is not a regular file; choose another with --out")
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, MODE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours, named = os.fstat(file), path.stat()
        except BlockingIOError as e:
            os.close(file)
            raise Busy(f"another batch is writing to {path}") from e
        except BaseException:
            os.close(file)
            raise
        if (ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino):
            return file
        os.close(file)  # it was replaced between open and lock


def _write(file: int, line: bytes) -> None:
    while line:
        line = line[os.write(file, line) :]


def _refuse_foreign(file: int, path: Path, batch: str) -> None:
    """Raise Invalid if the file has lines that no batch of this name wrote. A truncated last line is ignored."""
    with os.fdopen(os.dup(file), "rb") as lines:
        lines.seek(0)
        for number, line in enumerate(lines, 1):
            try:
                known = msgspec.convert(json.loads(line), _ResultHeader)
            except (ValueError, RecursionError) as e:
                if number > 1 and not line.endswith(b"\n"):
                    return
                raise Invalid(
                    f"line {number} of {path} is not a result; the file was left unchanged. Choose another with --out"
                ) from e
            if known.batch != batch:
                raise Invalid(
                    f"{path} contains results of batch {known.batch!r} and was left unchanged; choose another with --out"
                )
