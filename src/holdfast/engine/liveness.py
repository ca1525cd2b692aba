"""Who this process is, and whether another one still runs."""

import os
import socket
from pathlib import Path
from typing import Literal

import psutil

from holdfast.store.workers import Identity

Fate = Literal["alive", "gone", "elsewhere"]
BOOT = Path("/proc/sys/kernel/random/boot_id")
PID_SPACE = Path("/proc/self/ns/pid")


def identity() -> Identity:
    """This process, told from any other on any machine and in any boot."""
    pid = os.getpid()
    started = _started(pid)
    assert started is not None, "this process runs"
    return Identity(host=socket.gethostname(), boot=_boot(), pid=pid, process_started=started)


def fate(other: Identity, ours: Identity) -> Fate:
    """What became of a process, as far as this one can see it.

    Only a process of the same host, boot and pid space can be looked up; a pid that now belongs to
    somebody who started at another time is not it. Of all others nothing is known from here.
    """
    if (other.host, other.boot) != (ours.host, ours.boot):
        return "elsewhere"
    return "alive" if _started(other.pid) == other.process_started else "gone"


def _boot() -> str:
    if not BOOT.exists():
        return f"since {psutil.boot_time():.0f}"
    return f"{BOOT.read_text('ascii').strip()} {PID_SPACE.readlink()}"


def _started(pid: int) -> str | None:
    """When the process started, in the kernel's own count where there is one: that does not move with the clock."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return _started_by_psutil(pid)
    fields = stat[stat.rindex(b")") + 2 :].split()
    return None if fields[0] in (b"Z", b"X") else fields[19].decode("ascii")


def _started_by_psutil(pid: int) -> str | None:
    if BOOT.exists():
        return None
    try:
        return f"{psutil.Process(pid).create_time():.2f}"
    except psutil.NoSuchProcess:
        return None
