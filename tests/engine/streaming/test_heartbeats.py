"""A follower hears regularly that its turn goes on, whatever else happens in the session."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import aclosing
from pathlib import Path
from types import SimpleNamespace

import pytest

from holdfast.engine.admission.admit import Admission
from holdfast.engine.streaming.bus import Bus, LiveText
from holdfast.engine.streaming.watch import SessionWatch
from holdfast.model.event import SessionOpened
from holdfast.store.repos import sessions
from holdfast.store.sqlite.driver import SqliteDatabase, open_sqlite
from holdfast.tasks import running

IDLE_SECONDS = 0.001
TIMEOUT = 20.0


@pytest.fixture
async def database(tmp_path: Path) -> AsyncIterator[SqliteDatabase]:
    database = await open_sqlite(tmp_path / "holdfast.db")
    yield database
    await database.close()


async def repeat(act: Callable[[], object]) -> None:
    while True:
        act()
        await asyncio.sleep(0)


@pytest.mark.parametrize("runs_here", [True, False], ids=["another turn streams", "another worker commits"])
async def test_a_queued_turn_sends_heartbeats_while_the_session_is_busy(
    database: SqliteDatabase, *, runs_here: bool
) -> None:
    session, _ = await database.write(sessions.create, "hf-1", SessionOpened(source="api"), at=1)
    bus = Bus()
    services = SimpleNamespace(database=database, bus=bus)
    watch = SessionWatch(services, lambda _: runs_here, lambda _: [])  # type: ignore[arg-type]
    subscription = watch.subscribe(session.id, durable=False)
    queued = Admission(session, "turn-queued")

    def act() -> None:
        if runs_here:
            bus.publish(session.id, LiveText("turn-running", "text", "word "))
        else:
            bus.wake(session.id)

    async with (
        asyncio.timeout(TIMEOUT),
        running(repeat(act)),
        aclosing(watch.turn(queued, subscription, idle_seconds=IDLE_SECONDS)) as items,
    ):
        assert [await anext(items), await anext(items)] == [None, None]
