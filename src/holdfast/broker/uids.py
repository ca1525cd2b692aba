"""A uid for each user, so that the kernel isolates their processes. Only root can assign them."""

import os
import pwd
import secrets
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.settings import BrokerSettings as Wanted

BLOCK_SIZE = 4096
KILLER_UIDS = range(0x7FFE_0000 - BLOCK_SIZE, 0x7FFE_0000)
"""Uids of the processes that kill a user's processes, one each. Nothing else uses them."""
UNUSED_UIDS = range(0x7000_0000, KILLER_UIDS.start)
"""Uids that no known distribution, container manager or directory service assigns."""
TRIES = 100
KILL_SECONDS = 10.0
IMPORT_SCRIPT = "import holdfast"
ACCESS_SCRIPT = "import os, sys; os.stat(os.path.join(sys.argv[1], '.'))"
KILL_SCRIPT = f"""
import os, sys
uid, ours = map(int, sys.argv[1:])
os.setgroups([])
os.setresgid(uid, uid, uid)
try:
    os.setresuid(ours, uid, ours)
except OSError:  # a container with few uids lacks it
    ours = uid
    os.setresuid(uid, uid, uid)
assert uid > 0 and os.getresuid() == (ours, uid, ours), "kill(-1) would hit other users"
try:
    os.kill(-1, {signal.SIGKILL:d})
except ProcessLookupError:
    pass
"""


def first_free_uid(wanted: Wanted, next_uid: int | None) -> int | None:
    """Return the lowest uid for a new user. It was never used before, so no old files belong to it.

    Users get uids if the broker is root, unless the settings forbid it. Without a configured start the broker begins
    with a random block: another broker on the same machine does not know our users and must not reuse their uids.
    """
    if wanted.first_uid:
        return max(wanted.first_uid, next_uid or 0)
    if wanted.first_uid == 0 or os.geteuid() != 0:
        return None
    return next_uid or UNUSED_UIDS.start + BLOCK_SIZE * secrets.randbelow(len(UNUSED_UIDS) // BLOCK_SIZE)


def find_obstacle(uid: int, homes: Path) -> str:
    """Return why a worker cannot run with this uid: it must read the program and reach its home. Empty if it can."""
    try:
        return f"uid {uid} belongs to {pwd.getpwuid(uid).pw_name}; set broker.first_uid to an unused one"
    except KeyError:
        pass
    try:
        said = _run_as(uid, IMPORT_SCRIPT)
    except PermissionError as e:
        said = e.strerror or str(e)
    except OSError as e:
        return f"uid {uid} is not available here: {e.strerror}; set broker.first_uid to an available one"
    if said:
        return f"uid {uid} cannot run {sys.executable}: {said}; install Holdfast where all users can read it"
    said = _run_as(uid, ACCESS_SCRIPT, str(homes))
    return f"uid {uid} cannot use {homes}: {said}; set broker.homes to a folder it can reach" if said else ""


def kill_processes(uid: int) -> None:
    """Kill all processes of a uid at once, so that none can escape by starting another.

    The killing process has the user's effective uid but another real uid, so that the user can neither kill nor stop it.
    In a container with few uids the user can: then it is repeated.
    """
    for _ in range(TRIES):
        command = (sys.executable, "-I", "-S", "-c", KILL_SCRIPT, str(uid), str(secrets.choice(KILLER_UIDS)))
        with subprocess.Popen(command, cwd="/", env={}) as killer:  # noqa: S603 - ours
            try:
                status = killer.wait(KILL_SECONDS)
            except subprocess.TimeoutExpired:
                killer.kill()
                status = killer.wait()
        if status != -signal.SIGKILL:
            break
    if status != 0:
        raise subprocess.CalledProcessError(status, command)


def _run_as(uid: int, code: str, *words: str) -> str:
    """Run code as a uid; return its last error line, or nothing. Raises OSError if the process cannot start."""
    command: Sequence[str] = (sys.executable, "-P", "-c", code, *words)
    alone = {"user": uid, "group": uid, "extra_groups": ()}
    done = subprocess.run(command, cwd="/", check=False, capture_output=True, **alone)  # type: ignore[call-overload] # noqa: S603
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return "" if done.returncode == 0 else said[-1] if said else f"it exited with {done.returncode}"
