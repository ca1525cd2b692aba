"""What must hold in a SQLite store whatever happened to the processes that wrote to it.

Stricter than `holdfast.torture.invariants`: it also checks the file, the rows of sessions, and that writing continues.
"""

import asyncio
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import cast

from holdfast.model.entry import Entry
from holdfast.model.event import ModelSaid, SessionOpened, ToolEnded, TurnStarted, UserSaid
from holdfast.model.ids import SESSION, WORKER, Ids
from holdfast.model.message import Text, ToolCall
from holdfast.model.session import Session, summarise
from holdfast.model.turn import closing_events
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import leases, log, sessions, workers
from holdfast.store.sqlite import connection as sqlite_connection
from holdfast.store.sqlite import driver
from tests.crash.output import Head
from tests.crash.store_digest import digest
from tests.crash.writer import IDENTITY, VERSION
from tests.fakes.clock import FakeClock
from tests.fakes.forks import fork_session

EVERY = 2**31
Logs = dict[str, list[Entry]]


def verify(path: Path, acknowledged: Iterable[Head], *, may_be_gone: Collection[str] = ()) -> tuple[Logs, str]:
    """Open the store as the next start would, verify everything in it, and write to it. Return its logs and its digest."""
    return asyncio.run(_verify(path, list(acknowledged), may_be_gone))


async def _verify(path: Path, acknowledged: list[Head], may_be_gone: Collection[str]) -> tuple[Logs, str]:
    database = await driver.open_sqlite(path)
    try:
        _check_file(path)
        content = digest(path)
        logs = await database.read(read_proven_logs)
        for session_id, seq, hash_ in acknowledged:
            if session_id not in may_be_gone or session_id in logs:
                assert session_id in logs, f"session {session_id} was acknowledged and is missing"
                assert seq <= len(logs[session_id]), f"event {seq} of {session_id} was acknowledged and is missing"
                assert logs[session_id][seq - 1].hash == hash_, (
                    f"event {seq} of {session_id} differs from the acknowledged one"
                )
        await _continue_all(database, logs)
        await database.read(read_proven_logs)
    finally:
        await database.close()
    return logs, content


def _check_file(path: Path) -> None:
    """The checks of SQLite itself."""
    connection = sqlite_connection.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    finally:
        connection.close()


def read_proven_logs(tx: Transaction) -> Logs:
    """Every log, complete by count and hash, with a session row that equals the summary of the log."""
    logs = {}
    for (session_id,) in tx.all("sessions.list_ids", after="", limit=EVERY):
        session = sessions.get(tx, cast("str", session_id))
        logs[session.id] = log.read_complete(tx, session)
        assert session.summary == summarise(logs[session.id]), (
            f"the row of {session.id} differs from the summary of its log"
        )
    return logs


async def _continue_all(database: Database, logs: Logs) -> None:
    """As the next worker does: mark dead workers, take over every session, close open calls, append to it, and fork it."""
    clock = FakeClock()
    clock.pass_seconds(3600)
    ids = Ids(clock.now)
    worker = ids.make(WORKER)
    await database.write(workers.register, worker, "test", IDENTITY, version=VERSION, at=clock.now())
    for one in await database.read(workers.list_alive):
        if one.id != worker:
            await database.write(workers.mark_dead, one.id, "gone", at=clock.now())
    fresh, _ = await database.write(sessions.create, ids.make(SESSION), SessionOpened(source="run"), at=clock.now())
    for session_id in (*logs, fresh.id):
        await database.write(_add_to, session_id, worker, at=clock.now())
        fork = await database.write(fork_session, session_id, ids.make(SESSION), at=clock.now())
        assert_every_call_is_answered_once(await database.read(log.read_complete, fork))


def _add_to(tx: Transaction, session_id: str, worker: str, *, at: int) -> Session:
    lease = leases.take(tx, session_id, worker)
    closed = closing_events(log.read(tx, session_id))
    log.append(tx, lease, [*closed, TurnStarted(turn_id="next"), UserSaid(turn_id="next", parts=(Text("on"),))], at=at)
    assert leases.release(tx, lease)
    return sessions.get(tx, session_id)


def assert_every_call_is_answered_once(entries: Iterable[Entry]) -> None:
    """Check what every provider requires of a history."""
    calls: list[str] = []
    results: list[str] = []
    for entry in entries:
        match entry.event:
            case ModelSaid():
                calls += [part.id for part in entry.event.parts if isinstance(part, ToolCall)]
            case ToolEnded():
                results.append(entry.event.call_id)
    assert sorted(results) == sorted(calls)
