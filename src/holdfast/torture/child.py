"""Runs inside a program that a trial starts and kills: its parameters, its output lines, and the commands it receives.

The program exits when its parent does: a thread reads standard input all the time and exits at its end.
"""

import asyncio
import json
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import holdfast
from holdfast.clock import SystemClock
from holdfast.process_lookup import current_identity
from holdfast.store.database import Database
from holdfast.store.repos import workers
from holdfast.torture.scratch_store import load_opener

Parameters = dict[str, Any]


def emit(**fields: object) -> None:
    """Write one JSON line to the parent. It is in the pipe when this returns, even if the process dies next."""
    line = json.dumps(fields).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


class Commands:
    """The lines of standard input."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, name="commands", daemon=True).start()

    async def next(self) -> str:
        return await self._lines.get()

    @property
    def pending(self) -> bool:
        return not self._lines.empty()

    def _read(self) -> None:
        # Not through sys.stdin: the interpreter cannot exit cleanly while a daemon thread waits in it.
        rest = b""
        while chunk := os.read(0, 4096):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._loop.call_soon_threadsafe(self._lines.put_nowait, line.decode())
        os._exit(0)


async def register(database: Database, worker_id: str) -> None:
    """Register this program as a worker of the store."""
    at = SystemClock().now()
    await database.write(
        workers.register, worker_id, "torture", current_identity(), version=holdfast.__version__, at=at
    )


Program = Callable[[Database, Parameters, Commands], Awaitable[None]]


def main(program: Program) -> None:
    """Run a program on the store that its parameters name.

    The parameters are the first line of standard input, not arguments, because the URL may contain a password.
    """
    asyncio.run(_run(program))


async def _run(program: Program) -> None:
    commands = Commands()
    parameters: Parameters = json.loads(await commands.next())
    database = await load_opener(parameters["opener"])(parameters["url"])
    try:
        await program(database, parameters, commands)
    finally:
        await database.close()
