"""The inside of a program that is started to be killed: what it was told, what it says, and the orders it gets.

It ends when whoever started it does: its standard input is read all the time, and the end of that is the end of it.
"""

import asyncio
import json
import os
import threading
from collections.abc import Awaitable, Callable
from typing import Any

import holdfast
from holdfast.clock import SystemClock
from holdfast.identity import identity
from holdfast.store import workers
from holdfast.store.database import Database
from holdfast.torture.opening import load

Given = dict[str, Any]


def say(**fields: object) -> None:
    """One line to whoever started us, which is on its way when this returns, whatever happens next."""
    line = json.dumps(fields).encode() + b"\n"
    while line:
        line = line[os.write(1, line) :]


class Orders:
    """Lines of standard input."""

    def __init__(self) -> None:
        self._lines: asyncio.Queue[str] = asyncio.Queue()
        self._loop = asyncio.get_running_loop()
        threading.Thread(target=self._read, name="orders", daemon=True).start()

    async def next(self) -> str:
        return await self._lines.get()

    @property
    def waiting(self) -> bool:
        return not self._lines.empty()

    def _read(self) -> None:
        # Not by way of sys.stdin: a thread that waits there cannot be left behind at the end of the program.
        rest = b""
        while chunk := os.read(0, 4096):
            *lines, rest = (rest + chunk).split(b"\n")
            for line in lines:
                self._loop.call_soon_threadsafe(self._lines.put_nowait, line.decode())
        os._exit(0)


async def register(database: Database, worker_id: str) -> None:
    """Tell the store that this program runs."""
    at = SystemClock().now()
    await database.write(workers.register, worker_id, "torture", identity(), version=holdfast.__version__, at=at)


Program = Callable[[Database, Given, Orders], Awaitable[None]]


def main(program: Program) -> None:
    """Run a program on the store that the first line of standard input names: its address may hold a password."""
    asyncio.run(_run(program))


async def _run(program: Program) -> None:
    orders = Orders()
    given: Given = json.loads(await orders.next())
    database = await load(given["opener"])(given["url"])
    try:
        await program(database, given, orders)
    finally:
        await database.close()
