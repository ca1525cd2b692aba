"""The shim of one background process: a small program that runs the command and outlives the worker that started it.

    python -I -S shim.py start DIR     start the command in DIR/spec.json; its environment is a JSON object
                                       on standard input
    python -I -S shim.py resume DIR    read the output of a process whose shim was killed

`start` returns as soon as the command runs. The shim continues in a session of its own until every program of the
process has ended. It reads the output into files of limited size, holds the write end of the input, adopts
orphans of the process (as a subreaper), and records the exit code. It uses only the standard library, because the
package may be upgraded while it runs.

Files in DIR:
    spec.json      id, command, workdir, marker, shell, prefix (a program that runs the shell, such as a sandbox),
                   is_relayed (the prefix runs it elsewhere), segment_bytes; deleted if the start is cancelled
    in, out        the pipes; the process also holds the read end of `out`, so that it only blocks, once 64 KB are
                   unread, if its shim is killed
    keeper         pid and start time of the current shim
    keeper.log     errors of the shim
    lock           locked by the current shim
    started        pid and start time of the command's shell
    exit           exit code, once known; negative for a signal
    closed         exists once the input is closed
    eof            exists once no program can write to the output any more
    done           exists once every program of the process has ended
    output-N       the output from byte N on; only the newest two files are kept
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
"""Exit codes of shells for a program that does not exist, and for one that cannot be executed."""
SHELL_SIGNALS = 128
"""Shells and sandboxes add this to the number of the signal that ended a program."""
RETRY_SECONDS = 1
LOCK_TRIES = 20
LOCK_SECONDS = 0.05


def get_start_time(pid: int) -> str:
    """When the program started, in kernel ticks since boot."""
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    return stat[stat.rindex(b")") + 2 :].split()[19].decode("ascii")


def write_record(folder: Path, name: str, value: object) -> None:
    """Write a file atomically and durably."""
    temporary = folder / f"{name}.tmp"
    flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC
    with os.fdopen(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
        json.dump(value, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.rename(folder / name)
    descriptor = os.open(folder, os.O_RDONLY)
    os.fsync(descriptor)
    os.close(descriptor)


class RotatingOutput:
    """Writes the output to files of limited size. Counts bytes that cannot be written, and never blocks the process."""

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


class Shim:
    """Reads the output, reaps children and writes the records of one process."""

    def __init__(self, folder: Path, spec: dict[str, Any]) -> None:
        self.folder = folder
        self.spec = spec
        self.output = RotatingOutput(folder, spec["segment_bytes"])
        self.poll = select.poll()
        self.leader = 0
        self.has_children = True
        self.unwritten: dict[str, object] = {}
        self.stdin_writer = -1
        """The write end of the input; held open so that the process does not read end-of-file."""
        self.stdout_reader = os.open(folder / "out", os.O_RDONLY | os.O_NONBLOCK)
        self.poll.register(self.stdout_reader, select.POLLIN)
        self.is_open = True
        self.wakeup_reader, wakeup_writer = os.pipe()
        for end in (self.wakeup_reader, wakeup_writer):
            os.set_blocking(end, False)
        signal.set_wakeup_fd(wakeup_writer, warn_on_full_buffer=False)
        self.poll.register(self.wakeup_reader, select.POLLIN)
        for number in (signal.SIGCHLD, signal.SIGUSR1):
            signal.signal(number, lambda *_: None)

    def start(self, environment: dict[str, str]) -> None:
        """Start the command and record its identity. If the start was cancelled meanwhile, the command is not executed."""
        stdout = os.open(self.folder / "out", os.O_RDWR)
        stdin = os.open(self.folder / "in", os.O_RDONLY | os.O_NONBLOCK)
        self.stdin_writer = os.open(self.folder / "in", os.O_WRONLY)
        os.set_blocking(stdin, True)
        gate, gate_writer = os.pipe()
        self.leader = os.fork()
        if self.leader == 0:
            os.close(gate_writer)
            exec_command(self.spec, environment, gate, stdin, stdout)
        for end in (stdout, stdin, gate):
            os.close(end)
        write_record(self.folder, "started", {"pid": self.leader, "started": get_start_time(self.leader)})
        # A worker that cancels the start deletes spec.json before it reads `started`, so one of the two sees the other.
        if (self.folder / "spec.json").exists():
            os.write(gate_writer, b"!")
        os.close(gate_writer)

    def resume(self) -> None:
        """Hold the input open, as the previous shim did, unless the process has closed its end."""
        self.has_children = False
        if not (self.folder / "closed").exists():
            with contextlib.suppress(OSError):
                self.stdin_writer = os.open(self.folder / "in", os.O_WRONLY | os.O_NONBLOCK)

    def run(self) -> None:
        """Read output and reap children until all programs have ended."""
        while self.has_children or (self.is_open and not self.leader):
            for end, _ in self.poll.poll(RETRY_SECONDS * 1000 if self.unwritten else None):
                if end == self.stdout_reader:
                    self._read_output()
                else:
                    self._handle_signals()
            self._write_records()
        while self.is_open and self._read_output():
            pass
        self.output.close()
        if self.leader:
            self.unwritten["done"] = {"at": time.time()}
        while not self._write_records():
            time.sleep(RETRY_SECONDS)

    def _write_records(self) -> bool:
        """Write the pending records. False if the disk is full: the caller tries again, because the kernel reports an exit code only once."""
        for name, value in list(self.unwritten.items()):
            try:
                write_record(self.folder, name, value)
            except FileNotFoundError:  # the directory was deleted, so no reader needs the record
                pass
            except OSError:
                return False
            del self.unwritten[name]
        return True

    def _read_output(self) -> bool:
        """Read one chunk of output. False if none is available now."""
        try:
            chunk = os.read(self.stdout_reader, CHUNK_BYTES)
        except BlockingIOError:
            return False
        if chunk:
            self.output.write(chunk)
            return True
        self.poll.unregister(self.stdout_reader)
        self.is_open = False
        self.unwritten["eof"] = {"at": time.time()}
        return False

    def _handle_signals(self) -> None:
        """Close the input if asked to, and reap ended children."""
        with contextlib.suppress(BlockingIOError):
            os.read(self.wakeup_reader, CHUNK_BYTES)
        if self.stdin_writer >= 0 and (self.folder / "closed").exists():
            os.close(self.stdin_writer)
            self.stdin_writer = -1
        while self.has_children:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                self.has_children = False
                return
            if pid == 0:
                return
            if pid == self.leader:
                code = os.waitstatus_to_exitcode(status)
                self.unwritten["exit"] = {"code": self._normalize(code), "at": time.time()}

    def _normalize(self, code: int) -> int:
        """The exit code, negative for a signal. A sandbox reports a signal as 128 plus its number."""
        by_signal = code - SHELL_SIGNALS
        return -by_signal if self.spec.get("prefix") and by_signal in set(signal.Signals) else code


def exec_command(spec: dict[str, Any], environment: dict[str, str], gate: int, stdin: int, stdout: int) -> None:
    """Execute the command as leader of a new session, after the parent has recorded its identity and opened the gate."""
    try:
        if not os.read(gate, 1):
            return
        os.setsid()
        for number in (signal.SIGPIPE, signal.SIGXFSZ, signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGCHLD):
            signal.signal(number, signal.SIG_DFL)
        os.dup2(stdin, 0)
        os.dup2(stdout, 1)
        os.dup2(stdout, 2)
        os.chdir(spec["workdir"])
        marked = environment | {spec["marker"]: spec["id"]}
        command = [*spec.get("prefix", ()), spec["shell"], "-c", spec["command"]]
        os.execve(command[0], command, marked)  # noqa: S606 - the purpose of this program
    except OSError as e:
        os.write(2, f"cannot start the command: {e}\n".encode())
        os._exit(NOT_FOUND if e.errno == errno.ENOENT else NOT_RUN)
    finally:
        os._exit(NOT_RUN)  # never return: the child would become a second shim


def acquire_lock(folder: Path) -> bool:
    """Become the only shim of the directory. False if there is another. The lock ends with this program."""
    lock = os.open(folder / "lock", os.O_RDWR | os.O_CREAT, 0o600)
    for _ in range(LOCK_TRIES):
        with contextlib.suppress(BlockingIOError):
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            write_record(folder, "keeper", {"pid": os.getpid(), "started": get_start_time(os.getpid())})
            return True
        time.sleep(LOCK_SECONDS)
    return False


def detach(folder: Path) -> None:
    """Become a daemon that is independent of the worker, with its errors in `keeper.log`."""
    os.setsid()
    os.chdir("/")
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    errors = os.open(folder / "keeper.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    null = os.open(os.devnull, os.O_RDWR)
    for standard, end in enumerate((null, null, errors)):
        os.dup2(end, standard)


def adopt_orphans() -> None:
    """Become the parent of programs that fork twice to detach, to find and reap them."""
    ctypes.CDLL(None).prctl(PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)


def main(action: str, folder: Path) -> int:
    """Fork the shim, and return when it has started the command."""
    spec = json.loads((folder / "spec.json").read_text("utf-8"))
    environment = json.load(sys.stdin) if action == "start" else {}
    ready, ready_writer = os.pipe()
    if os.fork():
        os.close(ready_writer)
        return 0 if os.read(ready, 1) else 1
    detach(folder)
    if not spec.get("is_relayed"):
        adopt_orphans()
    if not acquire_lock(folder):
        return 0
    shim = Shim(folder, spec)
    if action == "start":
        shim.start(environment)
    else:
        shim.resume()
    os.write(ready_writer, b"!")
    os.close(ready_writer)
    shim.run()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1], Path(sys.argv[2])))
