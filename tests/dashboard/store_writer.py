"""Writes to the store of a running server, in a separate thread: the browser's event loop occupies this one."""

import asyncio
import time
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from holdfast.store.database import Transaction
from holdfast.store.sqlite.driver import open_sqlite

T = TypeVar("T")


def now() -> int:
    return time.time_ns() // 1000


def stock(home: Path, *works: Callable[[Transaction], T]) -> list[T]:
    """Run functions of a transaction on the store of a home, one after another."""

    async def go() -> list[T]:
        database = await open_sqlite(home / "holdfast.db")
        try:
            return [await database.write(work) for work in works]
        finally:
            await database.close()

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(asyncio.run, go()).result()
