"""Reads the process table of this machine, and finds the programs that belong to a background process.

A program belongs to a process if it has the marker in its environment, which every child inherits, if it is in the
session of the process's shell, or if it descends from such a program or from the shim, which is the parent of
orphans. This also finds a program that forked twice and cleared its environment.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from holdfast.clock import BootTime
from holdfast.model.process import MARKER
from holdfast.processes.process_dir import Program

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
LISTENING = "0A"
FLAG = f"{MARKER}=".encode()


class ProcessStat(msgspec.Struct, frozen=True):
    """A program as /proc shows it."""

    pid: int
    name: str
    parent: int
    session: int
    started: str
    cpu: float
    """Seconds of CPU time, including that of reaped children."""
    is_zombie: bool
    marker: str | None

    @property
    def program(self) -> Program:
        return Program(self.pid, self.started)


class ProcessTable:
    """A snapshot of all visible programs."""

    def __init__(self, visible: Iterable[ProcessStat], hidden: Iterable[int] = ()) -> None:
        self._hidden = frozenset(hidden)
        """Pids of programs that this process may not inspect."""
        self.by_pid = {stat.pid: stat for stat in visible}
        self._marked: dict[str, list[ProcessStat]] = {}
        self._children: dict[int, list[ProcessStat]] = {}
        self._sessions: dict[int, list[ProcessStat]] = {}
        for stat in self.by_pid.values():
            self._children.setdefault(stat.parent, []).append(stat)
            self._sessions.setdefault(stat.session, []).append(stat)
            if stat.marker is not None:
                self._marked.setdefault(stat.marker, []).append(stat)

    def runs(self, program: Program | None) -> bool:
        """Whether this program runs, or its pid belongs to a program that cannot be inspected."""
        return program is not None and (self._get(program) is not None or self.is_hidden(program))

    def is_hidden(self, program: Program) -> bool:
        """Whether its pid belongs to a program that cannot be inspected, for example with /proc mounted with `hidepid`."""
        return program.pid in self._hidden or (program.pid not in self.by_pid and _is_other_user(program.pid))

    def _get(self, program: Program) -> ProcessStat | None:
        stat = self.by_pid.get(program.pid)
        return stat if stat is not None and stat.started == program.started and not stat.is_zombie else None

    def members(self, process_id: str, leader: Program | None, shim: Program | None) -> list[ProcessStat]:
        """The running programs of a process without its shim, ordered by pid."""
        found: dict[int, ProcessStat] = {}
        waiting = list(self._marked.get(process_id, ()))
        if leader is not None and self._get(leader) is not None:
            waiting += self._sessions.get(leader.pid, ())
        if shim is not None and self._get(shim) is not None:
            waiting += self._children.get(shim.pid, ())
        while waiting:
            stat = waiting.pop()
            is_shim = shim is not None and stat.program == shim
            if stat.pid not in found and not is_shim and stat.marker in (None, process_id):
                found[stat.pid] = stat
                waiting += self._children.get(stat.pid, ())
        return [found[pid] for pid in sorted(found) if not found[pid].is_zombie]


def read_process_table() -> ProcessTable:
    """Read the whole process table."""
    found, hidden = [], []
    for pid in _pids():
        try:
            stat = read_process(pid)
        except PermissionError:
            hidden.append(pid)
        else:
            found += [stat] if stat is not None else []
    return ProcessTable(found, hidden)


def _is_other_user(pid: int) -> bool:
    """Whether the pid exists, but belongs to another user, so that /proc may hide it."""
    try:
        os.kill(pid, 0)
    except PermissionError:
        return True
    except ProcessLookupError:
        pass
    return False


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir(PROC) if name.isdecimal())  # noqa: PTH208 - creates no Path per entry


def read_process(pid: int) -> ProcessStat | None:
    """Read one program. None if it has ended. Raises PermissionError if it may not be inspected."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    end = stat.rindex(b")")
    fields = stat[end + 2 :].split()
    is_zombie = fields[0] in (b"Z", b"X")
    return ProcessStat(
        pid=pid,
        name=stat[stat.index(b"(") + 1 : end].decode("utf-8", "replace"),
        parent=int(fields[1]),
        session=int(fields[3]),
        started=fields[19].decode("ascii"),
        cpu=sum(map(int, fields[11:15])) / TICKS,
        is_zombie=is_zombie,
        marker=None if is_zombie else _read_marker(pid),
    )


def _read_marker(pid: int) -> str | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # it has ended, or belongs to another user
        return None
    at = 0 if environment.startswith(FLAG) else environment.find(b"\0" + FLAG) + 1
    if at == 0 and not environment.startswith(FLAG):
        return None
    return environment[at + len(FLAG) :].split(b"\0", 1)[0].decode("utf-8", "replace")


def fingerprint(members: Iterable[ProcessStat]) -> str:
    """A short text that changes whenever a program starts or ends."""
    names = " ".join(f"{stat.pid}:{stat.started}" for stat in members)
    return hashlib.sha256(names.encode()).hexdigest()[:12]


def youngest_age(members: Iterable[ProcessStat]) -> float:
    """Seconds since the newest of them started."""
    return max(0.0, BootTime()() - max(int(stat.started) for stat in members) / TICKS)


def count_io_bytes(members: Iterable[ProcessStat]) -> int:
    """Bytes that they have read and written, where that can be read."""
    return sum(_read_io_bytes(stat.pid) for stat in members)


def _read_io_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/io").read_text("ascii")
    except OSError:
        return 0
    values = dict(line.split(": ") for line in text.splitlines())
    return int(values["rchar"]) + int(values["wchar"])


class Sockets:
    """The listening sockets of programs. Each network namespace is read once."""

    def __init__(self) -> None:
        self._listening: dict[str, dict[str, str]] = {}

    def listening_addresses(self, members: Iterable[ProcessStat]) -> tuple[str, ...]:
        """The addresses on which any of these programs listens, sorted."""
        found: set[str] = set()
        for stat in members:
            try:
                network = os.readlink(f"/proc/{stat.pid}/ns/net")  # noqa: PTH115 - called for every program
                handles = _read_descriptors(stat.pid)
            except OSError:  # it has ended, or belongs to another user
                continue
            known = self._listening.get(network)
            if known is None:
                known = self._listening[network] = _read_listening(stat.pid)
            found |= {known[handle] for handle in handles if handle in known}
        return tuple(sorted(found))


def _read_descriptors(pid: int) -> list[str]:
    """The targets of the open file descriptors of a program."""
    found = []
    with os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            try:
                found.append(os.readlink(entry.path))  # noqa: PTH115
            except FileNotFoundError:  # closed in the meantime
                continue
    return found


def _read_listening(pid: int) -> dict[str, str]:
    """The address of each listening socket in the network namespace of a program."""
    found = {}
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{name}").read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == LISTENING:
                found[f"socket:[{fields[9]}]"] = _parse_address(fields[1])
    return found


def _parse_address(text: str) -> str:
    """Convert `0100007F:223D` to `127.0.0.1:8765`. The kernel writes words of four bytes in host byte order."""
    import ipaddress
    import sys

    host, _, port = text.partition(":")
    words = [bytes.fromhex(host[at : at + 8]) for at in range(0, len(host), 8)]
    raw = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    address = ipaddress.ip_address(raw)
    return f"{address}:{int(port, 16)}" if address.version == 4 else f"[{address}]:{int(port, 16)}"
