"""Reads text that is piped into a command."""

import os
import select
import stat
import sys

from holdfast.cli import context

WAIT_SECONDS = 3.0
"""How long to wait for the first byte: programs often start others with a pipe that they never write to."""


def read_all() -> str:
    """Read standard input to its end, however long that takes."""
    return sys.stdin.buffer.read().decode("utf-8", "surrogateescape")


def read_attached(*, wait: bool) -> str:
    """Read piped or redirected standard input; empty for a terminal, a device, or a silent pipe.

    With `wait`, read a pipe however long it takes.
    """
    if sys.stdin is None or sys.stdin.closed:
        return ""
    try:
        mode = os.fstat(sys.stdin.fileno()).st_mode
    except OSError:
        return ""
    if stat.S_ISREG(mode):
        return read_all()
    if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
        return ""
    if not wait and not select.select([sys.stdin], [], [], WAIT_SECONDS)[0]:
        context.note(
            f"holdfast: no data on standard input within {WAIT_SECONDS:.0f} s; continuing without it. "
            "Use --stdin to wait, or --no-stdin to ignore it."
        )
        return ""
    return read_all()
