"""The directory of one process, as everything except its shim uses it: the records and the output in it."""

import contextlib
import json
import os
import signal
import time
from pathlib import Path

import msgspec

from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.process import MARKER
from holdfast.process_lookup import get_start_time
from holdfast.processes.shell import find_shell

TAIL_BYTES = 65_536
INPUT_BYTES = 65_536
"""The capacity of a pipe whose reader does not read."""


class OutputPage(msgspec.Struct, frozen=True):
    """A part of the output. The first `gone` bytes were deleted to limit the size of the files."""

    text: str
    start: int
    end: int
    total: int
    gone: int


class Program(msgspec.Struct, frozen=True):
    """The identity of a program on this machine and boot."""

    pid: int
    started: str


class LaunchPlan(msgspec.Struct, frozen=True):
    """How the shim starts the shell of a command."""

    workdir: Path
    """The directory of this machine in which it is started."""
    prefix: tuple[str, ...] = ()
    """A program with its arguments that runs the shell, such as a sandbox."""
    is_relayed: bool = False
    """Whether the prefix runs the shell elsewhere, so that programs it leaves here are not the command's."""


class ProcessDir:
    """`processes.shim` lists the files in it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def prepare(self, process_id: str, command: str, plan: LaunchPlan, output_bytes: int) -> None:
        """Create the directory, the pipes and the file with the command. Raises Unavailable if that fails."""
        spec = {
            "id": process_id,
            "command": command,
            "workdir": str(plan.workdir),
            "marker": MARKER,
            "shell": find_shell(),
            "prefix": list(plan.prefix),
            "is_relayed": plan.is_relayed,
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
            raise Unavailable(f"cannot create the directory of the process: {e}") from e

    def adopt(self, program: Program) -> None:
        """Create the directory of a program that already runs. It has no shim, so its output and exit code are lost."""
        self.path.mkdir(mode=0o700, parents=True)
        (self.path / "started").write_text(json.dumps({"pid": program.pid, "started": program.started}), "ascii")
        for name in ("adopted", "closed", "eof"):
            (self.path / name).touch(mode=0o600)

    def has(self, name: str) -> bool:
        return (self.path / name).exists()

    @property
    def shim(self) -> Program | None:
        """The shim of the process; it may have ended."""
        return self._read_program("keeper")

    @property
    def leader(self) -> Program | None:
        """The shell that runs the command."""
        return self._read_program("started")

    def _read_program(self, name: str) -> Program | None:
        found = self._read(name)
        return None if found is None else msgspec.convert(found, Program)

    @property
    def exit_code(self) -> int | None:
        found = self._read("exit")
        return None if found is None else msgspec.convert(found["code"], int)

    def _read(self, name: str) -> dict[str, object] | None:
        """Read a record. Records are replaced atomically, so a partial one is never read."""
        try:
            return msgspec.json.decode((self.path / name).read_bytes(), type=dict[str, object])
        except (FileNotFoundError, NotADirectoryError):
            return None

    def segments(self) -> list[tuple[int, Path, int]]:
        """The output files: the offset of each in the output, its path and its size."""
        found = []
        for path in sorted(self.path.glob("output-*")):
            try:
                found.append((int(path.name[7:]), path, path.stat().st_size))
            except FileNotFoundError:  # the shim has deleted it in the meantime
                continue
        return found

    def output_age(self) -> float:
        """Seconds since the last output."""
        segments = self.segments()
        return max(0.0, time.time() - segments[-1][1].stat().st_mtime) if segments else 0.0

    def output_bytes(self) -> int:
        """Total bytes of output, including deleted ones."""
        segments = self.segments()
        return segments[-1][0] + segments[-1][2] if segments else 0

    def read(self, start: int | None = None, limit: int = TAIL_BYTES) -> OutputPage:
        """The output from byte `start` on, or the end of the output."""
        segments = self.segments()
        total = segments[-1][0] + segments[-1][2] if segments else 0
        gone = segments[0][0] if segments else 0
        first = max(gone, total - limit if start is None else min(max(start, 0), total))
        chunk = b""
        for begin, path, size in segments:
            if begin + size > first + len(chunk) and len(chunk) < limit:
                chunk += self._read_segment(path, first + len(chunk) - begin, limit - len(chunk))
        return OutputPage(chunk.decode("utf-8", "replace"), first, first + len(chunk), total, gone)

    def _read_segment(self, path: Path, offset: int, limit: int) -> bytes:
        try:
            with path.open("rb") as file:
                file.seek(offset)
                return file.read(limit)
        except FileNotFoundError:  # the shim has deleted it in the meantime
            return b""

    def last_lines(self, lines: int, limit: int) -> str:
        """The last lines of the output, limited to a number of characters."""
        text = "\n".join(self.read().text.splitlines()[-lines:])
        return text if len(text) <= limit else "…" + text[-limit:]

    def cancel_start(self) -> Program | None:
        """Prevent the command from starting, however late its shim is. Returns its leader if it has already started."""
        with contextlib.suppress(FileNotFoundError, NotADirectoryError):  # without a directory nothing can start
            (self.path / "spec.json").unlink()
        return self.leader

    def write_input(self, text: str, *, close: bool) -> int:
        """Write to the standard input, and close it if `close` is set. Returns the number of bytes written.

        Raises Invalid if no program can read it any more.
        """
        if self.has("closed"):
            raise Invalid("its input is already closed")
        try:
            pipe = os.open(self.path / "in", os.O_WRONLY | os.O_NONBLOCK)
        except OSError as e:
            raise Invalid(f"it does not read its input: {e.strerror}") from e
        try:
            return _write_available(pipe, text.encode("utf-8", "surrogateescape"))
        finally:
            os.close(pipe)
            if close:
                self._close_input()

    def _close_input(self) -> None:
        (self.path / "closed").touch(mode=0o600)
        shim = self.shim
        if shim is not None:
            send_signal(shim, signal.SIGUSR1)


def _write_available(pipe: int, data: bytes) -> int:
    """Write as much as the pipe accepts now."""
    written = 0
    while written < len(data):
        try:
            written += os.write(pipe, data[written : written + INPUT_BYTES])
        except BlockingIOError:
            break
        except BrokenPipeError as e:
            raise Invalid("it no longer reads its input") from e
    return written


def send_signal(program: Program, number: int) -> bool:
    """Send a signal to this program only. False if it has ended. Another program that reuses its pid gets no signal."""
    if not hasattr(os, "pidfd_open"):
        return send_signal_by_pid(program, number)
    try:
        handle = os.pidfd_open(program.pid)
    except ProcessLookupError:
        return False
    try:
        if get_start_time(program.pid) != program.started:
            return False
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return False
    finally:
        os.close(handle)
    return True


def send_signal_by_pid(program: Program, number: int) -> bool:
    """As `send_signal`, for systems without process descriptors, such as Termux. A program that ends after the check, and
    whose pid is reused at once, could be missed and another one hit."""
    if get_start_time(program.pid) != program.started:
        return False
    try:
        os.kill(program.pid, number)
    except ProcessLookupError:
        return False
    return True
