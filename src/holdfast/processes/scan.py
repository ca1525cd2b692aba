"""One look at all programs of this machine, and which of them belong to which process.

A program belongs to a process if it carries its marker, which everything inherits that the process
starts, if it is in the session of its shell, or if it descends from one that does, or from its
keeper, which takes orphans in. One that has detached itself twice and wiped its environment is thus found, too.
"""

import hashlib
import os
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from holdfast.model.process import MARKER
from holdfast.processes.folder import Program

PROC = Path("/proc")
TICKS = os.sysconf("SC_CLK_TCK")
LISTENING = "0A"
FLAG = f"{MARKER}=".encode()


class Seen(msgspec.Struct, frozen=True):
    """A program as the kernel shows it."""

    pid: int
    name: str
    parent: int
    session: int
    started: str
    cpu: float
    """Seconds, with those of children that have ended and were waited for."""
    is_zombie: bool
    marker: str | None

    @property
    def program(self) -> Program:
        return Program(self.pid, self.started)


class Machine:
    """All programs that could be seen at one moment."""

    def __init__(self, seen: Iterable[Seen]) -> None:
        self.by_pid = {one.pid: one for one in seen}
        self._marked: dict[str, list[Seen]] = {}
        self._children: dict[int, list[Seen]] = {}
        self._sessions: dict[int, list[Seen]] = {}
        for one in self.by_pid.values():
            self._children.setdefault(one.parent, []).append(one)
            self._sessions.setdefault(one.session, []).append(one)
            if one.marker is not None:
                self._marked.setdefault(one.marker, []).append(one)

    def runs(self, program: Program | None) -> bool:
        """Whether exactly this program is there and alive."""
        return program is not None and self._found(program) is not None

    def _found(self, program: Program) -> Seen | None:
        one = self.by_pid.get(program.pid)
        return one if one is not None and one.started == program.started and not one.is_zombie else None

    def members(self, process_id: str, leader: Program | None, keeper: Program | None) -> list[Seen]:
        """The living programs of a process, in the order of their pids. Its keeper is none of them."""
        found: dict[int, Seen] = {}
        waiting = list(self._marked.get(process_id, ()))
        if leader is not None and self._found(leader) is not None:
            waiting += self._sessions.get(leader.pid, ())
        if keeper is not None and self._found(keeper) is not None:
            waiting += self._children.get(keeper.pid, ())
        while waiting:
            one = waiting.pop()
            is_keeper = keeper is not None and one.program == keeper
            if one.pid not in found and not is_keeper and one.marker in (None, process_id):
                found[one.pid] = one
                waiting += self._children.get(one.pid, ())
        return [found[pid] for pid in sorted(found) if not found[pid].is_zombie]


def look() -> Machine:
    """Look at the machine now."""
    return Machine(one for pid in _pids() if (one := see(pid)) is not None)


def _pids() -> Iterator[int]:
    return (int(name) for name in os.listdir(PROC) if name.isdecimal())  # noqa: PTH208 - a thousand paths less


def see(pid: int) -> Seen | None:
    """One program; None if it is gone."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return None
    end = stat.rindex(b")")
    fields = stat[end + 2 :].split()
    is_zombie = fields[0] in (b"Z", b"X")
    return Seen(
        pid=pid,
        name=stat[stat.index(b"(") + 1 : end].decode("utf-8", "replace"),
        parent=int(fields[1]),
        session=int(fields[3]),
        started=fields[19].decode("ascii"),
        cpu=sum(map(int, fields[11:15])) / TICKS,
        is_zombie=is_zombie,
        marker=None if is_zombie else _marker(pid),
    )


def _marker(pid: int) -> str | None:
    try:
        environment = Path(f"/proc/{pid}/environ").read_bytes()
    except OSError:  # gone, or another user's
        return None
    at = 0 if environment.startswith(FLAG) else environment.find(b"\0" + FLAG) + 1
    if at == 0 and not environment.startswith(FLAG):
        return None
    return environment[at + len(FLAG) :].split(b"\0", 1)[0].decode("utf-8", "replace")


def crowd(members: Iterable[Seen]) -> str:
    """A short text that changes with any program that starts or ends."""
    names = " ".join(f"{one.pid}:{one.started}" for one in members)
    return hashlib.sha256(names.encode()).hexdigest()[:12]


def youngest(members: Iterable[Seen]) -> float:
    """Seconds since the newest of them started."""
    uptime = float(Path("/proc/uptime").read_text("ascii").split()[0])
    return max(0.0, uptime - max(int(one.started) for one in members) / TICKS)


def moved_bytes(members: Iterable[Seen]) -> int:
    """What they have read and written, as far as it may be known."""
    return sum(_moved(one.pid) for one in members)


def _moved(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/io").read_text("ascii")
    except OSError:
        return 0
    values = dict(line.split(": ") for line in text.splitlines())
    return int(values["rchar"]) + int(values["wchar"])


class Sockets:
    """Where programs listen for connections. Each network of the machine is read once."""

    def __init__(self) -> None:
        self._listening: dict[str, dict[str, str]] = {}

    def of(self, members: Iterable[Seen]) -> tuple[str, ...]:
        """The addresses at which any of these listens, sorted."""
        found: set[str] = set()
        for one in members:
            try:
                network = os.readlink(f"/proc/{one.pid}/ns/net")  # noqa: PTH115 - called for every program
                handles = _handles(one.pid)
            except OSError:  # gone, or another user's
                continue
            known = self._listening.get(network)
            if known is None:
                known = self._listening[network] = _listening(one.pid)
            found |= {known[handle] for handle in handles if handle in known}
        return tuple(sorted(found))


def _handles(pid: int) -> list[str]:
    """What a program has open."""
    found = []
    with os.scandir(f"/proc/{pid}/fd") as entries:
        for entry in entries:
            try:
                found.append(os.readlink(entry.path))  # noqa: PTH115
            except FileNotFoundError:  # closed meanwhile
                continue
    return found


def _listening(pid: int) -> dict[str, str]:
    """The address of each socket that accepts connections, in the network that a program is in."""
    found = {}
    for name in ("tcp", "tcp6"):
        try:
            lines = Path(f"/proc/{pid}/net/{name}").read_text("ascii").splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == LISTENING:
                found[f"socket:[{fields[9]}]"] = _address(fields[1])
    return found


def _address(text: str) -> str:
    """`0100007F:223D` as `127.0.0.1:8765`: words of four bytes each, in the machine's order."""
    import ipaddress
    import sys

    host, _, port = text.partition(":")
    words = [bytes.fromhex(host[at : at + 8]) for at in range(0, len(host), 8)]
    raw = b"".join(word[::-1] if sys.byteorder == "little" else word for word in words)
    address = ipaddress.ip_address(raw)
    return f"{address}:{int(port, 16)}" if address.version == 4 else f"[{address}]:{int(port, 16)}"
