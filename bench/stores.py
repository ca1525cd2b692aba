"""Stores made and filled for measuring."""

import asyncio
import time
from collections.abc import Sequence
from pathlib import Path

from bench import texts
from holdfast.model.event import Event, SessionOpened
from holdfast.model.process_identity import Identity
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import leases, log, sessions, workers
from holdfast.store.repos.leases import Lease
from holdfast.store.sqlite.driver import SqliteDatabase, open_sqlite

WORKER = "worker-bench"
AT_ONCE = 500
"""Events in one transaction while a store is filled."""


def now() -> int:
    return time.time_ns() // 1000


def session_id(number: int) -> str:
    return f"hf-{number:020}"


def register(tx: Transaction) -> None:
    identity = Identity(host="bench", boot="bench", pid=1, process_started="1")
    workers.register(tx, WORKER, "bench", identity, version="0", at=now())


def hold(tx: Transaction, number: int) -> Lease:
    """A new session with this number, held by the worker."""
    session, _ = sessions.create(tx, session_id(number), SessionOpened(source="run", model="scripted:bench"), at=now())
    return leases.take(tx, session.id, WORKER)


async def new_store(path: Path) -> SqliteDatabase:
    db = await open_sqlite(path)
    await db.write(register)
    return db


async def fill(db: SqliteDatabase, lease: Lease, events: Sequence[Event]) -> None:
    """Append many events, several hundred to a transaction."""
    for start in range(0, len(events), AT_ONCE):
        await db.write(log.append, lease, events[start : start + AT_ONCE], at=now())


def add_sessions(tx: Transaction, first: int, count: int, messages: int) -> None:
    """Sessions of a few turns each, which nobody holds."""
    for number in range(first, first + count):
        sessions.create(tx, session_id(number), SessionOpened(source="chat", model="scripted:bench"), at=now())
        log.append_unheld(tx, session_id(number), list(texts.turns(number * messages, messages)), at=now())


async def appends(db: Database, held: list[Lease], each: int) -> float:
    """Messages a second when each session appends its own, one after the other."""

    async def one(lease: Lease) -> None:
        for number in range(each):
            await db.write(log.append, lease, [texts.said(number)], at=now())

    start = time.perf_counter()
    await asyncio.gather(*(one(lease) for lease in held))
    return each * len(held) / (time.perf_counter() - start)
