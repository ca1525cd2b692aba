"""A uid for each user, so that the kernel keeps their programs apart. Only root can give them out."""

import os
import secrets
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.settings import Broker as Wanted

UNUSED = range(0x7000_0000, 0x7FFE_0000)
"""Uids that no distribution, container manager or directory service is known to give out."""
BLOCK = 4096
TRIES = 100
LOAD = "import holdfast"
WALK = "import os, sys; os.stat(os.path.join(sys.argv[1], '.'))"
END = f"""
import os, sys
uid = int(sys.argv[1])
os.setgroups([])
os.setresgid(uid, uid, uid)
os.setresuid(uid, uid, uid)
assert uid > 0 and os.getresuid() == (uid, uid, uid), "what comes now would be the end of everybody"
try:
    os.kill(-1, {signal.SIGKILL:d})
except ProcessLookupError:
    pass
"""


def are_given(wanted: Wanted) -> bool:
    """Whether users are to have uids: where we are root, unless it is said that they are not."""
    return os.geteuid() == 0 if wanted.first_uid is None else wanted.first_uid > 0


def first(wanted: Wanted, next_uid: int | None) -> int | None:
    """The lowest uid that a new user may get, if they are to get one.

    A broker that nobody has told begins with a block that was drawn by lot: another one on the same machine, with a
    home of its own, does not know of our users, and should not give their uids to its own.
    """
    if not are_given(wanted):
        return None
    return wanted.first_uid or next_uid or UNUSED.start + BLOCK * secrets.randbelow(len(UNUSED) // BLOCK)


def obstacle(uid: int, homes: Path) -> str:
    """What is in the way of a worker, which must read the program and get to its home with the rights of a uid alone."""
    try:
        said = _run_as(uid, LOAD)
    except PermissionError as e:
        said = e.strerror or str(e)
    except OSError as e:
        return f"there is no uid {uid} here: {e.strerror}; set broker.first_uid to one that there is"
    if said:
        return f"uid {uid} cannot run {sys.executable}: {said}; install Holdfast where everybody can read it"
    said = _run_as(uid, WALK, str(homes))
    return f"uid {uid} cannot use {homes}: {said}; set broker.homes to a place it can get to" if said else ""


def end_programs(uid: int) -> None:
    """Kill everything that runs under a user's uid, all at once, so that nothing can get away by starting another.

    Whoever does that runs under the uid, too, and may be met by another who does, or by the user: then it is done again.
    """
    command = (sys.executable, "-I", "-S", "-c", END, str(uid))
    for _ in range(TRIES):
        done = subprocess.run(command, cwd="/", env={}, check=False)  # noqa: S603 - ours
        if done.returncode != -signal.SIGKILL:
            break
    done.check_returncode()


def _run_as(uid: int, code: str, *words: str) -> str:
    """What went wrong, in its last words, or nothing. Raises what the system has against such a process."""
    command: Sequence[str] = (sys.executable, "-P", "-c", code, *words)
    alone = {"user": uid, "group": uid, "extra_groups": ()}
    done = subprocess.run(command, cwd="/", check=False, capture_output=True, **alone)  # type: ignore[call-overload] # noqa: S603
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return "" if done.returncode == 0 else said[-1] if said else f"it ended with {done.returncode}"
