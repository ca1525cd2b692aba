"""Ends all of a process, whatever it has started: a request first, the kill after a while."""

import asyncio
import signal
from collections.abc import Callable, Sequence

from holdfast.processes.folder import send
from holdfast.processes.scan import Seen

POLL_SECONDS = 0.05
KILL_ROUNDS = 100
"""Looks for what was started between a look and its kill, or takes its time to die."""

Look = Callable[[], Sequence[Seen]]
"""The programs that are left now. Called in a thread."""


def signal_all(members: Sequence[Seen], number: int) -> int:
    """Signal each of these programs and no other; how many were there."""
    return sum(send(one.program, number) for one in members)


async def end_all(look: Look, grace_seconds: float) -> bool:
    """Ask all to end, kill what is left after the grace; whether nothing is left. A cancellation makes it quicker."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + grace_seconds
    members = await asyncio.to_thread(look)
    try:
        if grace_seconds > 0:
            signal_all(members, signal.SIGTERM)
            signal_all(members, signal.SIGCONT)  # one that is stopped hears nothing before
            while members and loop.time() < deadline:
                await asyncio.sleep(POLL_SECONDS)
                members = await asyncio.to_thread(look)
    finally:
        signal_all(members, signal.SIGKILL)
    for _ in range(KILL_ROUNDS):
        members = await asyncio.to_thread(look)
        if not members:
            return True
        signal_all(members, signal.SIGKILL)
        await asyncio.sleep(POLL_SECONDS)
    return False
