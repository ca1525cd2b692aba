"""Becomes the worker of one user: a small program that locks, limits and names itself, and then is `holdfast serve`.

    python -I -S launch.py < SPEC

It is started by a broker and outlives it. All that must be true before the worker runs is done here, by the process that
will be the worker, so that a broker that is killed at any moment leaves either a worker that can be found or none:
the lock is held for as long as it lives, and who it is was written down before it does anything. It uses nothing
but the standard library.

SPEC is a JSON object
    run        the folder of the broker's for this worker: lock, sock, state.json
    work       where the worker works
    argv, env  what it is; "{fd}" in argv is the socket
    state      what is written down beside pid and start time
    uid        whom it belongs to, or null
    groups     files by which it joins the control groups of its user
    limits     memory_bytes, processes, files
It ends with 75 if the lock is held: somebody is that worker already.
"""

import fcntl
import json
import os
import resource
import socket
import sys
from pathlib import Path
from typing import Any

HELD = 75
BACKLOG = 512
NICENESS = 5
"""Workers step back behind the broker, which has a little to do for everybody."""
OOM_SCORE = "500"
"""When memory runs out, a worker goes before the broker does: it is started again."""


def main() -> None:
    spec = json.load(sys.stdin)
    os.umask(0o077)
    os.chdir(spec["run"])
    lock = os.open("lock", os.O_RDONLY | os.O_CREAT, 0o600)  # the worker has it open, and is not to write to it
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os._exit(HELD)
    listener = listen()
    for file in spec["groups"]:
        Path(file).write_text(str(os.getpid()), "ascii")
    limit(spec["limits"], spec["uid"])
    write_down({**spec["state"], "pid": os.getpid(), "started": started()})
    if spec["uid"] is not None:
        become(spec["uid"])
    os.chdir(spec["work"])
    for descriptor in (lock, listener):
        os.set_inheritable(descriptor, True)
    argv = [word.replace("{fd}", str(listener)) for word in spec["argv"]]
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    os.execve(argv[0], argv, spec["env"])  # noqa: S606 - no shell is wanted


def listen() -> int:
    """A socket in the broker's own folder: no user can put anything else in its place, and nobody else can reach it."""
    Path("sock").unlink(missing_ok=True)
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    listener.bind("sock")
    listener.listen(BACKLOG)
    return listener.detach()


def limit(limits: dict[str, int], uid: int | None) -> None:
    """What a user's programs may take. Those that they start inherit it."""
    _lower(resource.RLIMIT_CORE, 0)
    _lower(resource.RLIMIT_DATA, limits["memory_bytes"])
    _lower(resource.RLIMIT_NOFILE, limits["files"])
    if uid is not None:  # the kernel counts by uid: under a shared one it would count everybody's
        _lower(resource.RLIMIT_NPROC, limits["processes"])
    os.nice(NICENESS)
    try:
        Path("/proc/self/oom_score_adj").write_text(OOM_SCORE, "ascii")
    except OSError:
        pass  # a wish, not a promise: some containers do not let anybody change it


def _lower(what: int, most: int) -> None:
    _, hard = resource.getrlimit(what)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(what, (most, most))


def write_down(state: dict[str, Any]) -> None:
    """Whole or not at all, and durably."""
    with os.fdopen(os.open("state.tmp", os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w", encoding="utf-8") as file:
        json.dump(state, file)
        file.flush()
        os.fsync(file.fileno())
    Path("state.tmp").rename("state.json")


def started() -> str:
    """When this program started, in the kernel's own count. It is the same after an exec."""
    stat = Path("/proc/self/stat").read_bytes()
    return stat[stat.rindex(b")") + 2 :].split()[19].decode("ascii")


def become(uid: int) -> None:
    """Give up everything but this uid, for good."""
    os.setgroups([])
    os.setresgid(uid, uid, uid)
    os.setresuid(uid, uid, uid)


if __name__ == "__main__":
    main()
