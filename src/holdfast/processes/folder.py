"""The folder of one process, as seen by everybody but its keeper: what was written down there, and its output."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import msgspec

from holdfast.identity import started
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.process import MARKER

SHELL = "/bin/bash"
TAIL_BYTES = 65_536
INPUT_BYTES = 65_536
"""What fits into a pipe whose reader is asleep."""


class Page(msgspec.Struct, frozen=True):
    """A piece of the output. `gone` bytes at the beginning were dropped to bound the files."""

    text: str
    start: int
    end: int
    total: int
    gone: int


class Program(msgspec.Struct, frozen=True):
    """A program by its identity on this machine and in this boot."""

    pid: int
    started: str


class Folder:
    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self, process_id: str, command: str, workdir: Path, output_bytes: int) -> None:
        """Make the folder, the pipes and the word of what to start. Raises Unavailable if that cannot be."""
        spec = {
            "id": process_id,
            "command": command,
            "workdir": str(workdir),
            "marker": MARKER,
            "shell": SHELL,
            "segment_bytes": max(1, output_bytes // 2),
        }
        try:
            self.path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            self.path.mkdir(mode=0o700)
            for name in ("in", "out"):
                os.mkfifo(self.path / name, 0o600)
            spec_file = os.open(self.path / "spec.json", os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
            with os.fdopen(spec_file, "w", encoding="utf-8") as file:
                json.dump(spec, file)
        except OSError as e:
            raise Unavailable(f"the process could not be given a folder: {e}") from e

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    @property
    def keeper(self) -> Program | None:
        """Who keeps the process, or did when it was last written down."""
        return self._program("keeper")

    @property
    def leader(self) -> Program | None:
        """The shell that runs the command."""
        return self._program("started")

    def _program(self, name: str) -> Program | None:
        found = self._read(name)
        return None if found is None else msgspec.convert(found, Program)

    @property
    def exit_code(self) -> int | None:
        found = self._read("exit")
        return None if found is None else msgspec.convert(found["code"], int)

    def _read(self, name: str) -> dict[str, object] | None:
        """What was written down under a name; files are put there whole, so half of one is never read."""
        try:
            return msgspec.json.decode((self.path / name).read_bytes(), type=dict[str, object])
        except (FileNotFoundError, NotADirectoryError):
            return None

    def segments(self) -> list[tuple[int, Path, int]]:
        """The files of the output: where each begins, and how long it is."""
        found = []
        for path in sorted(self.path.glob("output-*")):
            try:
                found.append((int(path.name[7:]), path, path.stat().st_size))
            except FileNotFoundError:  # dropped by the keeper meanwhile
                continue
        return found

    def output_age(self) -> float:
        """Seconds since something was last put out."""
        segments = self.segments()
        return max(0.0, time.time() - segments[-1][1].stat().st_mtime) if segments else 0.0

    def output_bytes(self) -> int:
        """How much was ever put out."""
        segments = self.segments()
        return segments[-1][0] + segments[-1][2] if segments else 0

    def read(self, start: int | None = None, limit: int = TAIL_BYTES) -> Page:
        """The output from a byte on, or without one its end."""
        segments = self.segments()
        total = segments[-1][0] + segments[-1][2] if segments else 0
        gone = segments[0][0] if segments else 0
        first = max(gone, total - limit if start is None else min(max(start, 0), total))
        chunk = b""
        for begin, path, size in segments:
            if begin + size > first + len(chunk) and len(chunk) < limit:
                chunk += self._piece(path, first + len(chunk) - begin, limit - len(chunk))
        return Page(chunk.decode("utf-8", "replace"), first, first + len(chunk), total, gone)

    def _piece(self, path: Path, offset: int, limit: int) -> bytes:
        try:
            with path.open("rb") as file:
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError:  # dropped by the keeper meanwhile
            return b""

    def last_lines(self, lines: int, limit: int) -> str:
        """The end of the output: so many lines, and no more than so many characters."""
        text = "\n".join(self.read().text.splitlines()[-lines:])
        return text if len(text) <= limit else "…" + text[-limit:]

    def call_off(self) -> Program | None:
        """Keep the command from beginning to run, however late its keeper is; its leader, if there is one already."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # there is no folder, so nothing can begin
            (self.path / "spec.json").unlink()
        return self.leader

    def give(self, text: str, *, close: bool) -> int:
        """Put a text into the input and close it if asked to; how many bytes were taken.

        Raises Invalid if nobody can read it any more.
        """
        if self.has("closed"):
            raise Invalid("its input was closed before")
        try:
            mouth = os.open(self.path / "in", os.O_WRONLY | os.O_NONBLOCK)
        except OSError as e:
            raise Invalid(f"it does not read its input: {e.strerror}") from e
        try:
            return _pour(mouth, text.encode("utf-8", "surrogateescape"))
        finally:
            os.close(mouth)
            if close:
                self._close_input()

    def _close_input(self) -> None:
        (self.path / "closed").touch(mode=0o600)
        keeper = self.keeper
        if keeper is not None:
            send(keeper, signal.SIGUSR1)


def _pour(mouth: int, data: bytes) -> int:
    """Write as much as the pipe takes now."""
    taken = 0
    while taken < len(data):
        try:
            taken += os.write(mouth, data[taken : taken + INPUT_BYTES])
        except BlockingIOError:
            break
        except BrokenPipeError as e:
            raise Invalid("it does not read its input any more") from e
    return taken


def send(program: Program, number: int) -> bool:
    """Signal exactly this program; False if it is gone. A pid that was given to another is not touched."""
    try:
        handle = os.pidfd_open(program.pid)
    except ProcessLookupError:
        return False
    try:
        if started(program.pid) != program.started:
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True
