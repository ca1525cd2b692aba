"""Launches the worker of one user: takes a lock, sets limits, records its identity, then executes `holdfast serve`.

    python -I -S launch.py < SPEC

A broker starts it, and it outlives the broker. The process that becomes the worker does everything that must happen
before the worker runs, so that a broker killed at any moment leaves either a worker that can be found or none:
it holds the lock as long as it lives, and it records its identity before it does anything else. It uses only the
standard library.

SPEC is a JSON object
    run        the broker's folder for this worker: lock, sock, state.json
    work       the working directory
    argv, env  the command; "{fd}" in argv is the socket
    state      fields of state.json besides pid and start time
    uid        the uid to run as, or null
    groups     files through which it joins the cgroups of its user
    limits     memory_bytes, processes, files
It exits with 75 if another process holds the lock: that worker is running already.
"""

import fcntl
import json
import os
import resource
import socket
import sys
from pathlib import Path
from typing import Any

LOCK_HELD = 75
BACKLOG = 512
NICE_INCREMENT = 5
"""Workers get less CPU priority than the broker, which serves all users."""
OOM_SCORE = "500"
"""When memory runs out, the kernel kills a worker before the broker: a worker is restarted."""


def main() -> None:
    spec = json.load(sys.stdin)
    os.umask(0o077)
    os.chdir(spec["run"])
    lock = os.open("lock", os.O_RDONLY | os.O_CREAT, 0o600)  # the worker inherits it and must not write to it
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os._exit(LOCK_HELD)
    listener = open_socket()
    for file in spec["groups"]:
        Path(file).write_text(str(os.getpid()), "ascii")
    set_limits(spec["limits"], spec["uid"])
    write_state({**spec["state"], "pid": os.getpid(), "started": process_start_time()})
    if spec["uid"] is not None:
        drop_privileges(spec["uid"])
    os.chdir(spec["work"])
    for descriptor in (lock, listener):
        os.set_inheritable(descriptor, True)
    argv = [word.replace("{fd}", str(listener)) for word in spec["argv"]]
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execve(argv[0], argv, spec["env"])  # noqa: S606 - no shell is wanted


def open_socket() -> int:
    """Open a socket in the broker's folder, where no user can replace or reach it."""
    Path("sock").unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("sock")
    listener.listen(BACKLOG)
    return listener.detach()


def set_limits(limits: dict[str, int], uid: int | None) -> None:
    """Set the limits of a user's processes. Child processes inherit them."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_DATA, limits["memory_bytes"])
    _lower(resource.RLIMIT_NOFILE, limits["files"])
    if uid is not None:  # the kernel counts per uid: a shared uid would count all users
        _lower(resource.RLIMIT_NPROC, limits["processes"])
    os.nice(NICE_INCREMENT)
    try:
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE, "ascii")
    except OSError:
        pass  # best effort: some containers forbid it


def _lower(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def write_state(state: dict[str, Any]) -> None:
    """Write the state atomically and durably."""
    with os.fdopen(os.open("state.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    Path("state.tmp").rename("state.json")
    folder = os.open(".", os.O_RDONLY | os.O_DIRECTORY)
    os.fsync(folder)
    os.close(folder)


def process_start_time() -> str:
    """Return the start time in kernel clock ticks. It stays the same after an exec."""
    stat = Path("/proc/self/stat").read_bytes()
    return stat[stat.rindex(b")") + 2 :].split()[19].decode("ascii")


def drop_privileges(uid: int) -> None:
    """Drop all privileges but those of this uid, permanently."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


if __name__ == "__main__":
    main()
