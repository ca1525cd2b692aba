"""Who this process is, and whether another one still runs."""

import logging
import os
import socket
from pathlib import Path
from typing import Literal

import psutil

from holdfast.store import sessions, workers
from holdfast.store.database import Database
from holdfast.store.workers import Identity

log = logging.getLogger(__name__)

Fate = Literal["alive", "gone", "elsewhere"]
BOOT = Path("/proc/sys/kernel/random/boot_id")
MACHINE = Path("/etc/machine-id")
PID_SPACE = Path("/proc/self/ns/pid")


def identity() -> Identity:
    """This process, told from any other on any machine and in any boot."""
    pid = os.getpid()
    started = _started(pid)
    assert started is not None, "this process runs"
    return Identity(host=_host(), boot=_boot(), pid=pid, process_started=started)


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
        return "alive" if _started(other.pid) == other.process_started else "gone"
    except PermissionError:
        return "elsewhere"


async def bury_dead_holder(database: Database, session_id: str, ours: Identity, *, at: int) -> str | None:
    """Take a session from its holder if that is certainly gone; the evidence, if so."""
    session = await database.read(sessions.get, session_id)
    return None if session.lease_worker is None else await bury_if_gone(database, session.lease_worker, ours, at=at)


async def bury_if_gone(database: Database, worker_id: str, ours: Identity, *, at: int) -> str | None:
    """Declare a worker dead if its process is certainly gone; the evidence, if so."""
    worker = await database.read(workers.get, worker_id)
    if worker is None or fate(worker.identity, ours) != "gone":
        return None
    evidence = f"no process {worker.pid} that started at {worker.process_started} runs on {worker.host}"
    await database.write(workers.bury, worker.id, evidence, at=at)
    log.info("%s is gone: %s; its sessions are free", worker.id, evidence)
    return evidence


def _host() -> str:
    """The machine: its name, and what tells it from another of that name."""
    name = socket.gethostname()
    try:
        return f"{name}#{MACHINE.read_text('ascii').strip()[:12]}"
    except (OSError, UnicodeDecodeError):
        return name


def _boot() -> str:
    if not BOOT.exists():
        return f"since {psutil.boot_time():.0f}"
    return f"{BOOT.read_text('ascii').strip()} {_pid_space()}"


def _pid_space() -> str:
    """Within which a pid means this process. One that has changed its user may not know: then nobody looks for its pid."""
    try:
        return str(PID_SPACE.readlink())
    except PermissionError:
        return f"known-to-nobody-but:{os.getpid()}"


def _started(pid: int) -> str | None:
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
    try:
        return f"{psutil.Process(pid).create_time():.2f}"
    except psutil.NoSuchProcess:
        return None
