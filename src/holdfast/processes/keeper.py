"""Keeps one background process: a small program of its own that outlives whoever started it.

    python -I -S keeper.py start FOLDER     starts the command of FOLDER/spec.json and keeps it; its environment
                                            is a JSON object on standard input
    python -I -S keeper.py relieve FOLDER   goes on reading the output of one whose keeper was killed

`start` returns as soon as the command runs; the keeper itself lives on, in a session of its own, until
nothing of the process is left. It reads the output into files of a bounded size, holds the other end
of the input, takes in the orphans of the process, and writes down how it ended. It uses nothing but
the standard library, because the package it came with may have been replaced while it ran.

FOLDER holds
    spec.json      id, command, workdir, marker, shell, segment_bytes; gone, if the start was called off
    in, out        the pipes; the process holds `out` for reading as well, so that the death of
                   its keeper costs it no more than a pause once 64 KB are waiting
    keeper         who keeps it now: pid and start time
    started        pid and start time of the command's shell
    exit           its exit code, once it has one; negative for a signal
    closed         there, once the input was closed
    eof            there, once nobody can write to the output any more
    done           there, once nothing is left of the process
    output-N       its output from byte N on; only the newest two are kept
"""

import contextlib
import ctypes
import errno
import fcntl
import json
import os
import select
import signal
import sys
import time
from pathlib import Path
from typing import Any

CHUNK_BYTES = 65_536
SEGMENTS = 2
PR_SET_CHILD_SUBREAPER = 36
NOT_FOUND, NOT_RUN = 127, 126
"""What shells answer for a program that is not there, and for one that cannot be run."""
RETRY_SECONDS = 1
LOCK_TRIES = 20
LOCK_SECONDS = 0.05


def started(pid: int) -> str:
    """When the program started, in the kernel's own count."""
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    return stat[stat.rindex(b")") + 2 :].split()[19].decode("ascii")


def write_down(folder: Path, name: str, value: object) -> None:
    """Write a file whole or not at all, and durably."""
    temporary = folder / f"{name}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / name)
    place = os.open(folder, os.O_RDONLY)
    os.fsync(place)
    os.close(place)


class Output:
    """The output in files of a bounded size. What cannot be written is counted and never stops the process."""

    def __init__(self, folder: Path, segment_bytes: int) -> None:
        self._folder = folder
        self._segment_bytes = segment_bytes
        self._lost = 0
        self._file = -1
        self._start = self._size = 0
        with contextlib.suppress(OSError):
            self._open(max((int(path.name[7:]) for path in folder.glob("output-*")), default=0))

    def _open(self, start: int) -> None:
        path = self._folder / f"output-{start:015}"
        flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND
        file = os.open(path, flags, 0o600)
        if self._file >= 0:
            os.close(self._file)
        self._file, self._start, self._size = file, start, os.fstat(file).st_size
        for old in sorted(self._folder.glob("output-*"))[:-SEGMENTS]:
            old.unlink()

    def write(self, chunk: bytes) -> None:
        try:
            if self._lost:
                self._append(f"\n[{self._lost:,} bytes of output could not be saved]\n".encode())
                self._lost = 0
            self._append(chunk)
        except OSError:
            self._lost += len(chunk)

    def _append(self, chunk: bytes) -> None:
        if self._file < 0 or self._size >= self._segment_bytes:
            self._open(self._start + self._size)
        left = memoryview(chunk)
        while left:
            written = os.write(self._file, left)
            self._size += written
            left = left[written:]

    def close(self) -> None:
        if self._file >= 0:
            with contextlib.suppress(OSError):
                os.fsync(self._file)


class Keeper:
    def __init__(self, folder: Path, spec: dict[str, Any]) -> None:
        self.folder = folder
        self.spec = spec
        self.output = Output(folder, spec["segment_bytes"])
        self.poll = select.poll()
        self.leader = 0
        self.has_children = True
        self.unwritten: dict[str, object] = {}
        self.mouth = -1
        """The end of the input that is written to; held so that the process does not see its end."""
        self.ear = os.open(folder / "out", os.O_RDONLY | os.O_NONBLOCK)
        self.poll.register(self.ear, select.POLLIN)
        self.is_open = True
        self.bell, ringer = os.pipe()
        for end in (self.bell, ringer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(ringer, warn_on_full_buffer=False)
        self.poll.register(self.bell, select.POLLIN)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)

    def start(self, environment: dict[str, str]) -> None:
        """Start the command and write down who it is. One that was called off meanwhile ends before it has run."""
        lips = os.open(self.folder / "out", os.O_RDWR)
        throat = os.open(self.folder / "in", os.O_RDONLY | os.O_NONBLOCK)
        self.mouth = os.open(self.folder / "in", os.O_WRONLY)
        os.set_blocking(throat, True)
        gate, opener = os.pipe()
        self.leader = os.fork()
        if self.leader == 0:
            os.close(opener)
            run(self.spec, environment, gate, throat, lips)
        for end in (lips, throat, gate):
            os.close(end)
        write_down(self.folder, "started", {"pid": self.leader, "started": started(self.leader)})
        # Whoever calls it off looks for what was just written down after that: one of us sees the other.
        if (self.folder / "spec.json").exists():
            os.write(opener, b"!")
        os.close(opener)

    def relieve(self) -> None:
        """Hold the input open, as the keeper before did. Who has closed their end does not want it."""
        self.has_children = False
        if not (self.folder / "closed").exists():
            with contextlib.suppress(OSError):
                self.mouth = os.open(self.folder / "in", os.O_WRONLY | os.O_NONBLOCK)

    def keep(self) -> None:
        """Read and reap until nothing is left."""
        while self.has_children or (self.is_open and not self.leader):
            for end, _ in self.poll.poll(RETRY_SECONDS * 1000 if self.unwritten else None):
                if end == self.ear:
                    self._hear()
                else:
                    self._wake()
            self._write_down()
        while self.is_open and self._hear():
            pass
        self.output.close()
        if self.leader:
            self.unwritten["done"] = {"at": time.time()}
        while not self._write_down():
            time.sleep(RETRY_SECONDS)

    def _write_down(self) -> bool:
        """Write down what is known; a disk that is full is tried again, for an exit code comes only once."""
        for name, value in list(self.unwritten.items()):
            try:
                write_down(self.folder, name, value)
            except FileNotFoundError:  # the folder was taken away: nobody wants to know
                pass
            except OSError:
                return False
            del self.unwritten[name]
        return True

    def _hear(self) -> bool:
        """Take in what was put out; False if there is nothing now."""
        try:
            chunk = os.read(self.ear, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if chunk:
            self.output.write(chunk)
            return True
        self.poll.unregister(self.ear)
        self.is_open = False
        self.unwritten["eof"] = {"at": time.time()}
        return False

    def _wake(self) -> None:
        with contextlib.suppress(BlockingIOError):
            os.read(self.bell, CHUNK_BYTES)
        if self.mouth >= 0 and (self.folder / "closed").exists():
            os.close(self.mouth)
            self.mouth = -1
        while self.has_children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.has_children = False
                return
            if pid == 0:
                return
            if pid == self.leader:
                self.unwritten["exit"] = {"code": os.waitstatus_to_exitcode(status), "at": time.time()}


def run(spec: dict[str, Any], environment: dict[str, str], gate: int, throat: int, lips: int) -> None:
    """Become the command, as the leader of a session of its own, once it was written down who that is."""
    try:
        if not os.read(gate, 1):
            return
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(throat, 0)
        os.dup2(lips, 1)
        os.dup2(lips, 2)
        os.chdir(spec["workdir"])
        known = environment | {spec["marker"]: spec["id"]}
        os.execve(spec["shell"], [spec["shell"], "-c", spec["command"]], known)  # noqa: S606 - what it is for
    except OSError as e:
        os.write(2, f"the command could not be started: {e}\n".encode())
        os._exit(NOT_FOUND if e.errno == errno.ENOENT else NOT_RUN)
    finally:
        os._exit(NOT_RUN)  # whatever went wrong, two keepers would be worse


def take_place(folder: Path) -> bool:
    """Become the one keeper of the folder; False if there is another. The lock goes with this program."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(LOCK_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            write_down(folder, "keeper", {"pid": os.getpid(), "started": started(os.getpid())})
            return True
        time.sleep(LOCK_SECONDS)
    return False


def detach(folder: Path) -> None:
    """Belong to nobody and hold nothing of whoever started this."""
    os.setsid()
    os.chdir("/")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    complaints = os.open(folder / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    nothing = os.open(os.devnull, os.O_RDWR)
    for standard, end in enumerate((nothing, nothing, complaints)):
        os.dup2(end, standard)
    # Programs that detach themselves twice become our children, and so are not lost sight of.
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main(deed: str, folder: Path) -> int:
    spec = json.loads((folder / "spec.json").read_text("utf-8"))
    environment = json.load(sys.stdin) if deed == "start" else {}
    ready, tell = os.pipe()
    if os.fork():
        os.close(tell)
        return 0 if os.read(ready, 1) else 1
    detach(folder)
    if not take_place(folder):
        return 0
    keeper = Keeper(folder, spec)
    if deed == "start":
        keeper.start(environment)
    else:
        keeper.relieve()
    os.write(tell, b"!")
    os.close(tell)
    keeper.keep()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
