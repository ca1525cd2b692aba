"""Child processes in a group of their own: starting one, finding who is left of it, ending all of it."""

import asyncio
import contextlib
import os
import signal
from asyncio.subprocess import DEVNULL, Process
from collections.abc import AsyncIterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO

import psutil

GRACE_SECONDS = 3.0
"""Between the request to end and the kill."""
POLL_SECONDS = 0.05
CHUNK_BYTES = 65_536
REAP_SECONDS = 2.0
"""For those who were killed to be gone."""


@contextlib.asynccontextmanager
async def listening() -> AsyncIterator[tuple[BinaryIO, asyncio.StreamReader]]:
    """A pipe for a child to write to, and its other end. Close the first once the child has it, to hear the end.

    Not the pipe that a subprocess can come with: waiting for the process then also waits for whoever holds the pipe.
    """
    read_end, write_end = os.pipe()
    reader = asyncio.StreamReader(limit=CHUNK_BYTES)
    with os.fdopen(write_end, "wb", 0) as mouth:
        transport, _ = await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(read_end, "rb", 0)
        )
        try:
            yield mouth, reader
        finally:
            transport.close()


async def start(
    command: Sequence[str],
    *,
    workdir: Path,
    output: BinaryIO,
    errors: BinaryIO,
    environment: Mapping[str, str] | None = None,
) -> Process:
    """Run a program as the leader of a new group, without input. A start that is cancelled leaves nothing behind."""
    spawning = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command,
            stdin=DEVNULL,
            stdout=output,
            stderr=errors,
            cwd=workdir,
            env=environment,
            start_new_session=True,
        )
    )
    try:
        return await asyncio.shield(spawning)
    except asyncio.CancelledError:
        await asyncio.wait({spawning})
        if spawning.exception() is None:
            await end(spawning.result(), grace_seconds=0)
        raise


def members(group: int) -> list[str]:
    """The names of the processes of a group that still live."""
    if not send(group, 0):
        return []
    names = []
    for process in psutil.process_iter():
        try:
            if os.getpgid(process.pid) == group and process.status() != psutil.STATUS_ZOMBIE:
                names.append(process.name())
        except (ProcessLookupError, PermissionError, psutil.Error):
            continue
    return sorted(names)


def is_alive(group: int) -> bool:
    return bool(members(group))


def send(group: int, number: int) -> bool:
    """Signal a whole group; whether there was anybody. Zombies count, and so do processes we may not signal."""
    try:
        os.killpg(group, number)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


async def end(process: Process, *, grace_seconds: float = GRACE_SECONDS) -> None:
    """Ask the whole group to end, then kill what is left and see it gone. A cancellation in between only makes it quicker."""
    loop = asyncio.get_running_loop()
    try:
        if grace_seconds and send(process.pid, signal.SIGTERM):
            deadline = loop.time() + grace_seconds
            # The system tells nobody when a group ends, so it has to be asked.
            while loop.time() < deadline and await asyncio.to_thread(is_alive, process.pid):  # noqa: ASYNC110
                await asyncio.sleep(POLL_SECONDS)
    finally:
        send(process.pid, signal.SIGKILL)
        leaving = asyncio.ensure_future(_gone(process))
        await asyncio.wait({leaving}, timeout=REAP_SECONDS)
        leaving.cancel()


async def _gone(process: Process) -> None:
    """Wait for the end of a group that was killed: a killed process is not a dead one yet."""
    await process.wait()
    while await asyncio.to_thread(is_alive, process.pid):  # noqa: ASYNC110
        await asyncio.sleep(POLL_SECONDS)
