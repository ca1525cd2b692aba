"""Child processes in their own process group: start one, list the processes of its group, end all of them."""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

from holdfast.tasks import run_to_completion, running

GRACE_SECONDS = 3.0
"""Between SIGTERM and SIGKILL."""
POLL_SECONDS = 0.05
CHUNK_BYTES = 65_536
REAP_SECONDS = 2.0
"""How long to wait for killed processes to exit."""


@contextlib.asynccontextmanager
async def open_pipe() -> AsyncIterator[tuple[BinaryIO, asyncio.StreamReader]]:
    """A pipe: the end that a child writes to, and a reader. Close the write end once the child has it, or EOF never comes.

    asyncio's own subprocess pipes are not used: waiting for the process would also wait for every holder of the pipe.
    """
    read_descriptor, write_descriptor = os.pipe()
    reader = asyncio.StreamReader(limit=CHUNK_BYTES)
    with os.fdopen(write_descriptor, "wb", 0) as write_end:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_descriptor, "rb", 0)
        )
        try:
            yield write_end, reader
        finally:
            transport.close()


async def start(
    command: Sequence[str],
    *,
    workdir: Path | None = None,
    output: BinaryIO,
    errors: BinaryIO,
    environment: Mapping[str, str] | None = None,
    stdin: int = DEVNULL,
) -> Process:
    """Run a program as the leader of a new process group. A cancelled start leaves no process running."""
    started: list[Process] = []

    async def spawn() -> None:
        process = await asyncio.create_subprocess_exec(
            *command,
            stdin=stdin,
            stdout=output,
            stderr=errors,
            cwd=workdir,
            env=environment,
            start_new_session=True,
        )
        started.append(process)

    try:
        await run_to_completion(spawn())
    except asyncio.CancelledError:
        for process in started:
            await end_group(process, grace_seconds=0)
        raise
    return started[0]


def list_group(group: int) -> list[str]:
    """The names of the running processes of a group."""
    if not signal_group(group, 0):
        return []
    import psutil

    names = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                names.append(process.name())
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue
    return sorted(names)


def is_alive(group: int) -> bool:
    return bool(list_group(group))


def signal_group(group: int, number: int) -> bool:
    """Signal a whole group; return whether it has a process. Zombies count, and processes that we may not signal."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def end_group(process: Process, *, grace_seconds: float = GRACE_SECONDS) -> None:
    """Send SIGTERM to the group, then SIGKILL to what is left, and wait until it is gone. Cancellation skips the grace period."""
    loop = asyncio.get_running_loop()
    try:
        if grace_seconds and signal_group(process.pid, signal.SIGTERM):
            deadline = loop.time() + grace_seconds
            # The kernel sends no notification when a process group ends, so poll.
            while loop.time() < deadline and await asyncio.to_thread(is_alive, process.pid):  # noqa: ASYNC110
                await asyncio.sleep(POLL_SECONDS)
    finally:
        signal_group(process.pid, signal.SIGKILL)
        async with running(_wait_until_gone(process)) as (leaving,):
            await asyncio.wait({leaving}, timeout=REAP_SECONDS)


async def _wait_until_gone(process: Process) -> None:
    """Wait until a killed group is gone: a process does not exit at the moment it is killed."""
    await process.wait()
    while await asyncio.to_thread(is_alive, process.pid):  # noqa: ASYNC110
        await asyncio.sleep(POLL_SECONDS)
