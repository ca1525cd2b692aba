"""Terminates a process with everything it has started: SIGTERM first, SIGKILL after a grace period."""

import asyncio
import signal
from collections.abc import Callable, Sequence

from holdfast.processes.process_dir import send_signal
from holdfast.processes.procfs import ProcessStat

POLL_SECONDS = 0.05
KILL_ROUNDS = 100
"""How often SIGKILL is repeated, for programs started between a scan and its signals and for those that end slowly."""

FindMembers = Callable[[], Sequence[ProcessStat]]
"""Returns the programs that still run. Called in a thread."""

MONITORS = ("bwrap", "conmon")
"""Programs that wait for a command in a sandbox or a container and report its exit code."""


def signal_all(members: Sequence[ProcessStat], number: int) -> int:
    """Send a signal to each of these programs. Returns how many received it.

    A monitor receives only SIGKILL: it must survive other signals to report the exit code of the command.
    """
    is_kill = number == signal.SIGKILL
    return sum(send_signal(member.program, number) for member in members if is_kill or member.name not in MONITORS)


async def terminate_all(find_members: FindMembers, grace_seconds: float) -> bool:
    """Send SIGTERM to all, and SIGKILL to those left after the grace period. True if none is left. A cancellation ends the grace period."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace_seconds
    members = await asyncio.to_thread(find_members)
    try:
        if grace_seconds > 0:
            signal_all(members, signal.SIGTERM)
            signal_all(members, signal.SIGCONT)  # a stopped program handles SIGTERM only after SIGCONT
            while members and loop.time() < deadline:
                await asyncio.sleep(POLL_SECONDS)
                members = await asyncio.to_thread(find_members)
    finally:
        signal_all(members, signal.SIGKILL)
    for _ in range(KILL_ROUNDS):
        members = await asyncio.to_thread(find_members)
        if not members:
            return True
        signal_all(members, signal.SIGKILL)
        await asyncio.sleep(POLL_SECONDS)
    return False
