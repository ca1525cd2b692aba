"""The identity of this process, and whether another process still runs."""

import os
import socket
from pathlib import Path
from typing import Literal

from holdfast.model.process_identity import Identity

ProcessState = Literal["alive", "gone", "elsewhere"]
BOOT = Path("/proc/sys/kernel/random/boot_id")
MACHINE = Path("/etc/machine-id")
PID_SPACE = Path("/proc/self/ns/pid")


def current_identity() -> Identity:
    """The identity of this process, unique across machines and boots."""
    pid = os.getpid()
    began = get_start_time(pid)
    assert began is not None, "this process runs"
    return Identity(host=_host(), boot=_boot(), pid=pid, process_started=began)


def check_process(other: Identity, ours: Identity) -> ProcessState:
    """Whether a process still runs, as far as this process can tell.

    Only a process of the same machine, boot and pid namespace can be looked up. A pid with a different start time
    belongs to another process. A process of an earlier boot of this machine is `gone`. Any other process, and one that
    may not be inspected, is `elsewhere`: its state is unknown.
    """
    if other.host != ours.host:
        return "elsewhere"
    if other.boot != ours.boot:
        rebooted = other.boot.split(" ")[0] != ours.boot.split(" ")[0]
        return "gone" if rebooted else "elsewhere"
    try:
        return "alive" if get_start_time(other.pid) == other.process_started else "gone"
    except PermissionError:
        return "elsewhere"


def is_stopped(other: Identity, ours: Identity) -> bool:
    """Whether a process of this machine is stopped by Ctrl-Z, SIGSTOP or a debugger."""
    try:
        return check_process(other, ours) == "alive" and _stat(other.pid)[0] in (b"T", b"t")
    except OSError:  # it just ended, is not readable, or this system has no /proc
        return False


def _host() -> str:
    """The machine: its name, and a machine id that distinguishes it from others of that name."""
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
    """The pid namespace. A process that changed its user may not read it; its pid is then valid for no other process."""
    try:
        return str(PID_SPACE.readlink())
    except PermissionError:
        return f"known-to-nobody-but:{os.getpid()}"


def get_start_time(pid: int) -> str | None:
    """When the process started, in kernel ticks where available, which do not change with the wall clock.

    None if there is no such process. Raises PermissionError if it may not be inspected.
    """
    try:
        fields = _stat(pid)
    except (FileNotFoundError, ProcessLookupError):
        if not BOOT.exists():
            return _started_by_psutil(pid)
        _refuse_hidden(pid)
        return None
    return None if fields[0] in (b"Z", b"X") else fields[19].decode("ascii")


def _stat(pid: int) -> list[bytes]:
    """The fields of /proc/PID/stat from the state on. Raises OSError."""
    stat = Path(f"/proc/{pid}/stat").read_bytes()
    return stat[stat.rindex(b")") + 2 :].split()


def _refuse_hidden(pid: int) -> None:
    """Raise PermissionError for a process of another user that a /proc mounted with `hidepid` hides."""
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
