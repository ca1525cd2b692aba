"""A uid for each user, so that the kernel keeps their programs apart. Only root can give them out."""

import os
import pwd
import secrets
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

from holdfast.settings import Broker as Wanted

BLOCK = 4096
ENDERS = range(0x7FFE_0000 - BLOCK, 0x7FFE_0000)
"""Whom those belong to who end the programs of a user, each to another one. Nobody else has these uids."""
UNUSED = range(0x7000_0000, ENDERS.start)
"""Uids that no distribution, container manager or directory service is known to give out."""
TRIES = 100
END_SECONDS = 10.0
LOAD = "import holdfast"
WALK = "import os, sys; os.stat(os.path.join(sys.argv[1], '.'))"
END = f"""
import os, sys
uid, ours = map(int, sys.argv[1:])
os.setgroups([])
os.setresgid(uid, uid, uid)
try:
    os.setresuid(ours, uid, ours)
except OSError:  # a container with few uids has no such one
    ours = uid
    os.setresuid(uid, uid, uid)
assert uid > 0 and os.getresuid() == (ours, uid, ours), "what comes now would be the end of everybody"
try:
    os.kill(-1, {signal.SIGKILL:d})
except ProcessLookupError:
    pass
"""


def first(wanted: Wanted, next_uid: int | None) -> int | None:
    """The lowest uid that a new user may get: nobody has had it, so nobody can reach what tries it.

    They get one where we are root, unless it is said that they do not. A broker that nobody has told begins with a block that was drawn by lot: another one on the same machine, with a
    home of its own, does not know of our users, and should not give their uids to its own.
    """
    if wanted.first_uid:
        return max(wanted.first_uid, next_uid or 0)
    if wanted.first_uid == 0 or os.geteuid() != 0:
        return None
    return next_uid or UNUSED.start + BLOCK * secrets.randbelow(len(UNUSED) // BLOCK)


def obstacle(uid: int, homes: Path) -> str:
    """What is in the way of a worker, which must read the program and get to its home with the rights of a uid alone."""
    try:
        return f"uid {uid} is that of {pwd.getpwuid(uid).pw_name}; set broker.first_uid to one that nobody has"
    except KeyError:
        pass
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

    Whoever does that has the rights of the user, but belongs to somebody else, so that the user can neither kill nor stop it,
    nor another who does the same. Where there are few uids they can: then it is done again.
    """
    for _ in range(TRIES):
        command = (sys.executable, "-I", "-S", "-c", END, str(uid), str(secrets.choice(ENDERS)))
        with subprocess.Popen(command, cwd="/", env={}) as ender:  # noqa: S603 - ours
            try:
                status = ender.wait(END_SECONDS)
            except subprocess.TimeoutExpired:
                ender.kill()
                status = ender.wait()
        if status != -signal.SIGKILL:
            break
    if status != 0:
        raise subprocess.CalledProcessError(status, command)


def _run_as(uid: int, code: str, *words: str) -> str:
    """What went wrong, in its last words, or nothing. Raises what the system has against such a process."""
    command: Sequence[str] = (sys.executable, "-P", "-c", code, *words)
    alone = {"user": uid, "group": uid, "extra_groups": ()}
    done = subprocess.run(command, cwd="/", check=False, capture_output=True, **alone)  # type: ignore[call-overload] # noqa: S603
    said = done.stderr.decode("utf-8", "replace").strip().splitlines()
    return "" if done.returncode == 0 else said[-1] if said else f"it ended with {done.returncode}"
