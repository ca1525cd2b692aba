"""What must be true of a store after anything that can happen to the processes that wrote to it."""

import asyncio
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import cast

from holdfast.model.entry import Entry
from holdfast.model.event import ModelSaid, SessionOpened, ToolEnded, TurnStarted, UserSaid
from holdfast.model.ids import SESSION, WORKER, Ids
from holdfast.model.message import Text, ToolCall
from holdfast.model.session import Session, summarise
from holdfast.model.turn import loose_ends
from holdfast.store import leases, log, sessions, sqlite, sqlite_connection, workers
from holdfast.store.database import Database, Transaction
from tests.crash.say import Place
from tests.crash.state import digest
from tests.crash.writer import IDENTITY, VERSION
from tests.fakes.clock import FakeClock

EVERY = 2**31
Logs = dict[str, list[Entry]]


def verify(path: Path, acknowledged: Iterable[Place], *, may_be_gone: Collection[str] = ()) -> tuple[Logs, str]:
    """Open the store as the next start would, prove all it holds, and write on. What it held, and its digest."""
    return asyncio.run(_verify(path, list(acknowledged), may_be_gone))


async def _verify(path: Path, acknowledged: list[Place], may_be_gone: Collection[str]) -> tuple[Logs, str]:
    database = await sqlite.open_sqlite(path)
    try:
        _sound(path)
        held = digest(path)
        logs = await database.read(proved)
        for session_id, seq, hash_ in acknowledged:
            if session_id not in may_be_gone or session_id in logs:
                assert session_id in logs, f"session {session_id} was acknowledged and is gone"
                assert seq <= len(logs[session_id]), f"event {seq} of {session_id} was acknowledged and is gone"
                assert logs[session_id][seq - 1].hash == hash_, f"event {seq} of {session_id} is another one"
        await _write_on(database, logs)
        await database.read(proved)
    finally:
        await database.close()
    return logs, held


def _sound(path: Path) -> None:
    """What SQLite itself can find fault with."""
    connection = sqlite_connection.connect(path)
    try:
        assert connection.execute("PRAGMA integrity_check").fetchall() == [("ok",)]
        assert connection.execute("PRAGMA foreign_key_check").fetchall() == []
    finally:
        connection.close()


def proved(tx: Transaction) -> Logs:
    """Every log, complete by count and hash, with a session row that is what the log adds up to."""
    logs = {}
    for (session_id,) in tx.all("sessions.ids", after="", limit=EVERY):
        session = sessions.get(tx, cast("str", session_id))
        logs[session.id] = log.read_whole(tx, session)
        assert session.summary == summarise(logs[session.id]), f"the row of {session.id} is not what its log adds up to"
    return logs


async def _write_on(database: Database, logs: Logs) -> None:
    """As the next worker does: bury the dead, take every session over, close what was left open, go on, and fork it."""
    clock = FakeClock()
    clock.pass_seconds(3600)
    ids = Ids(clock.now)
    worker = ids.make(WORKER)
    await database.write(workers.register, worker, "test", IDENTITY, version=VERSION, at=clock.now())
    for one in await database.read(workers.alive):
        if one.id != worker:
            await database.write(workers.bury, one.id, "gone", at=clock.now())
    fresh, _ = await database.write(sessions.create, ids.make(SESSION), SessionOpened(source="run"), at=clock.now())
    for session_id in (*logs, fresh.id):
        await database.write(_add_to, session_id, worker, at=clock.now())
        fork = await database.write(sessions.fork, session_id, ids.make(SESSION), at=clock.now())
        assert_every_call_is_answered_once(await database.read(log.read_whole, fork))


def _add_to(tx: Transaction, session_id: str, worker: str, *, at: int) -> Session:
    lease = leases.take(tx, session_id, worker)
    closed = loose_ends(log.read(tx, session_id))
    log.append(tx, lease, [*closed, TurnStarted(turn_id="next"), UserSaid(turn_id="next", parts=(Text("on"),))], at=at)
    assert leases.release(tx, lease)
    return sessions.get(tx, session_id)


def assert_every_call_is_answered_once(entries: Iterable[Entry]) -> None:
    """What every provider asks of a history."""
    asked: list[str] = []
    answered: list[str] = []
    for entry in entries:
        match entry.event:
            case ModelSaid():
                asked += [part.id for part in entry.event.parts if isinstance(part, ToolCall)]
            case ToolEnded():
                answered.append(entry.event.call_id)
    assert sorted(answered) == sorted(asked)
