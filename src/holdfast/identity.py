"""Who this program is, and whether another one still runs: the machine's side of identity, as `clock` is of time."""

import os
import socket
from pathlib import Path
from typing import Literal

from holdfast.model.identity import Identity

Fate = Literal["alive", "gone", "elsewhere"]
BOOT = Path("/proc/sys/kernel/random/boot_id")
MACHINE = Path("/etc/machine-id")
PID_SPACE = Path("/proc/self/ns/pid")


def identity() -> Identity:
    """This process, told from any other on any machine and in any boot."""
    pid = os.getpid()
    began = started(pid)
    assert began is not None, "this process runs"
    return Identity(host=_host(), boot=_boot(), pid=pid, process_started=began)


def fate(other: Identity, ours: Identity) -> Fate:
    """What became of a process, as far as this one can see it.

    Only a process of the same machine, boot and pid space can be looked up; a pid that now belongs to
    somebody who started at another time is not it. A process of an earlier boot of this machine is
    gone. Of all others, and of those that may not be looked at, nothing is known from here.
    """
    if other.host != ours.host:
        return "elsewhere"
    if other.boot != ours.boot:
        rebooted = other.boot.split(" ")[0] != ours.boot.split(" ")[0]
        return "gone" if rebooted else "elsewhere"
    try:
        return "alive" if started(other.pid) == other.process_started else "gone"
    except PermissionError:
        return "elsewhere"


def _host() -> str:
    """The machine: its name, and what tells it from another of that name."""
    name = socket.gethostname()
    try:
        return f"{name}#{MACHINE.read_text('ascii').strip()[:12]}"
    except (OSError, UnicodeDecodeError):
        return name


def _boot() -> str:
    if not BOOT.exists():
        import psutil

        return f"since {psutil.boot_time():.0f}"
    return f"{BOOT.read_text('ascii').strip()} {_pid_space()}"


def _pid_space() -> str:
    """Within which a pid means this process. One that has changed its user may not know: then nobody looks for its pid."""
    try:
        return str(PID_SPACE.readlink())
    except PermissionError:
        return f"known-to-nobody-but:{os.getpid()}"


def started(pid: int) -> str | None:
    """When the process started, in the kernel's own count where there is one: that does not move with the clock.

    None if there is no such process. Raises PermissionError for one that may not be looked at.
    """
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        if not BOOT.exists():
            return _started_by_psutil(pid)
        _refuse_hidden(pid)
        return None
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else fields[19].decode("ascii")


def _refuse_hidden(pid: int) -> None:
    """A /proc mounted with `hidepid` shows nothing of other users' processes, but a signal tells that they are there."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        pass


def _started_by_psutil(pid: int) -> str | None:
    import psutil

    try:
        return f"{psutil.Process(pid).create_time():.2f}"
    except psutil.NoSuchProcess:
        return None
