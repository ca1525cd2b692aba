"""Prevents other processes of the same user from reading the secrets of this process."""

import ctypes
from collections.abc import Collection
from pathlib import Path

PR_SET_DUMPABLE = 4
ENV_START, ENV_END = 47, 48
"""Indexes in /proc/self/stat, from the field after the name: the address range of the initial environment."""


def erase_initial_environment(names: Collection[str]) -> None:
    """Overwrite the values of these variables where the kernel shows them, in /proc/PID/environ.

    Removing a variable from the environment does not change that memory. Call this after the variables were removed, so
    that nothing refers to their values, and before starting threads that may read the environment.
    """
    start, end = _initial_environment()
    offset = 0
    for entry in ctypes.string_at(start, end - start).split(b"\0"):
        name, is_variable, value = entry.partition(b"=")
        if is_variable and name.decode("utf-8", "surrogateescape") in names:
            ctypes.memset(start + offset + len(name) + 1, 0, len(value))
        offset += len(entry) + 1


def _initial_environment() -> tuple[int, int]:
    try:
        stat = Path("/proc/self/stat").read_bytes()
    except FileNotFoundError:  # not Linux: other systems do not expose it
        return 0, 0
    fields = stat[stat.rindex(b")") + 2 :].split()
    return int(fields[ENV_START]), int(fields[ENV_END])


def deny_inspection() -> None:
    """Prevent unprivileged processes, even of the same user, from reading this one's memory and /proc files.

    As a consequence this process leaves no core dump, and a debugger needs root. Its child processes are not affected.
    """
    if Path("/proc/self/stat").exists():
        ctypes.CDLL(None).prctl(PR_SET_DUMPABLE, 0, 0, 0, 0)
