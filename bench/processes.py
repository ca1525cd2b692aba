"""Server processes of a benchmark: start and stop them, and read their CPU time and memory."""

import asyncio
import os
import sys
import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager

import psutil

STOP_SECONDS = 30
IDLE_SECONDS = 1.0
IDLE_SHARE = 0.03
"""Of a core: a server that waits uses less."""
IDLE_LIMIT_SECONDS = 300.0
CPU_CLOCK = 2
"""In the clock id of another process: count its time on a processor, in nanoseconds."""


@asynccontextmanager
async def started(
    *command: str, executable: str = sys.executable, environment: Mapping[str, str] | None = None
) -> AsyncIterator[tuple[psutil.Process, int]]:
    """Start a server in its own process; yields it and its port, which it prints in its first line."""
    process = await asyncio.create_subprocess_exec(
        executable, *command, stdout=asyncio.subprocess.PIPE, env={**os.environ, **(environment or {})}
    )
    assert process.stdout is not None
    try:
        line = (await process.stdout.readline()).decode()
        yield psutil.Process(process.pid), int(line.split(";")[0].rpartition(":")[2])
    finally:
        await stop(process)


async def stop(process: asyncio.subprocess.Process) -> None:
    """Ask a process to end, and kill it if it does not."""
    if process.returncode is None:
        process.terminate()
    try:
        await asyncio.wait_for(process.wait(), STOP_SECONDS)
    except TimeoutError:
        process.kill()
        await process.wait()


def cpu_seconds(process: psutil.Process) -> float:
    """CPU time of a process and the processes it has started that still run."""
    family = [process.pid, *(child.pid for child in process.children(recursive=True))]
    return sum(time.clock_gettime((~pid << 3) | CPU_CLOCK) for pid in family)


async def wait_until_idle(process: psutil.Process) -> None:
    """Wait until a server has finished the work of its start, such as indexing messages. Raises TimeoutError."""
    async with asyncio.timeout(IDLE_LIMIT_SECONDS):
        used = IDLE_SECONDS
        while used > IDLE_SHARE * IDLE_SECONDS:
            before = cpu_seconds(process)
            await asyncio.sleep(IDLE_SECONDS)
            used = cpu_seconds(process) - before


def resident_bytes(process: psutil.Process) -> int:
    """Resident memory of a process."""
    return int(process.memory_info().rss)
