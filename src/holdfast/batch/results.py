"""The file of results: one line for each prompt that is finished, added as they finish and put into the prompts' order at the end.

The store is the truth and this file a copy of it. What a crash left of it is thrown away at the next start and made again,
so that no line is torn, missing or there twice. It is replaced as a whole, never half.
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

from holdfast.interop.shapes import dump
from holdfast.model.errors import Busy, Conflict, Invalid
from holdfast.model.event import Usage
from holdfast.store.private import MODE, sync_folder, translate


class Problem(msgspec.Struct, frozen=True):
    """Why a prompt failed."""

    code: str
    message: str


class Result(msgspec.Struct, frozen=True, kw_only=True):
    """A line of the file."""

    line: int
    id: str | int | None
    batch: str
    status: Literal["done", "failed"]
    session_id: str
    turn_id: str
    model: str
    text: str
    usage: Usage = Usage()
    error: Problem | None = None
    meta: object = None

    def encoded(self) -> bytes:
        return dump(msgspec.to_builtins(self)).encode() + b"\n"


class _Known(msgspec.Struct, frozen=True):
    """What every line of ours has."""

    line: int
    batch: str
    session_id: str


class ResultFile:
    """Open for one process at a time. Raises Busy if another has it open, Invalid if it holds something else, NotSaved."""

    def __init__(self, path: Path, batch: str) -> None:
        self.path = path.resolve()
        self._places: dict[int, tuple[int, int]] = {}
        """Where the line of each prompt begins, and how long it is."""
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

    def begin(self, finished: Iterable[Result]) -> None:
        """Make the file hold exactly these."""
        self._replace((result.line, result.encoded()) for result in finished)

    def add(self, result: Result) -> None:
        """One more line, to be seen by others at once."""
        assert result.line not in self._places, "each prompt has one line"
        line = result.encoded()
        try:
            _write(self._file, line)
        except OSError as e:
            raise translate(e, self.path) from e
        self._note(result.line, len(line))

    def finish(self) -> None:
        """Put the lines into the order of the prompts, for good."""
        self._refuse_changed()
        places = sorted(self._places.items())
        self._replace((number, os.pread(self._file, length, start)) for number, (start, length) in places)

    def _refuse_changed(self) -> None:
        """Raise Conflict if somebody else has written to the file, or put another in its place. One that was removed is made anew."""
        ours = os.fstat(self._file)
        try:
            named = self.path.stat()
        except FileNotFoundError:
            named = ours
        if ours.st_size != self._end or (ours.st_dev, ours.st_ino) != (named.st_dev, named.st_ino):
            raise Conflict(
                f"somebody else has changed {self.path} meanwhile; it was left as it is. All results are in the store: "
                "the same command with another --out writes them down"
            )

    def close(self) -> None:
        os.close(self._file)

    def _note(self, number: int, length: int) -> None:
        self._places[number] = self._end, length
        self._end += length

    def _replace(self, lines: Iterable[tuple[int, bytes]]) -> None:
        """Another file in the place of this one, which is held before it can be seen."""
        fresh = self.path.with_name(f"{self.path.name}.{os.getpid()}.partial")
        try:
            file = os.open(fresh, os.O_RDWR | os.O_CREAT | os.O_TRUNC | os.O_APPEND, MODE)
            try:
                fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                os.fchmod(file, stat.S_IMODE(os.fstat(self._file).st_mode))
                places, end = {}, 0
                for number, line in lines:
                    _write(file, line)
                    places[number] = end, len(line)
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
        self._file, self._places, self._end = file, places, end


def _open(path: Path) -> int:
    """The file, held by us alone until it is closed."""
    if path.exists() and not path.is_file():
        raise Invalid(f"{path} is not a plain file; results need one")
    while True:
        file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, MODE)
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
            ours, named = os.fstat(file), path.stat()
        except BlockingIOError as e:
            os.close(file)
            raise Busy(f"another batch writes to {path} at this moment") from e
        except BaseException:
            os.close(file)
            raise
        if (ours.st_dev, ours.st_ino) == (named.st_dev, named.st_ino):
            return file
        os.close(file)  # it was replaced between the two


def _write(file: int, line: bytes) -> None:
    while line:
        line = line[os.write(file, line) :]


def _refuse_foreign(file: int, path: Path, batch: str) -> None:
    """Raise Invalid for a file with lines that no batch of this name wrote. One that is cut off at the end is of no account."""
    with os.fdopen(os.dup(file), "rb") as lines:
        lines.seek(0)
        for number, line in enumerate(lines, 1):
            try:
                known = msgspec.convert(json.loads(line), _Known)
            except (ValueError, RecursionError) as e:
                if number > 1 and not line.endswith(b"\n"):
                    return
                raise Invalid(
                    f"{path} holds something other than results (line {number}), and was left as it is; name another file with --out"
                ) from e
            if known.batch != batch:
                raise Invalid(
                    f"{path} holds results of the batch {known.batch!r}, and was left as it is; name another file with --out"
                )
