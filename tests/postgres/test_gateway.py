"""The gateway and schedules on a store that several machines share."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast.cron import Cron, next_slot
from holdfast.model.times import micros
from holdfast.store.postgres.driver import PostgresDatabase, open_postgres
from holdfast.store.repos import schedules
from holdfast.store.repos.schedules import Schedule
from tests.engine.stage import set_up
from tests.fakes.channel import FakeChannel
from tests.fakes.clock import FakeClock
from tests.gateway.gateway_fixture import run_gateway


async def test_messages_keep_their_order_and_are_answered_once(database: PostgresDatabase, tmp_path: Path) -> None:
    channel = FakeChannel(tells_queued=False)
    stage = await set_up(tmp_path, model="echo", database=_any(database))
    async with run_gateway(tmp_path, channel, stage=stage) as fixture:
        for number in range(10):
            for _ in range(2):
                await channel.say(f"number {number}", message=f"m{number}")
        replies = await fixture.replies(10)
        await stage.engine.close()

    assert replies == [f"You said: number {number}" for number in range(10)]


async def test_slots_are_shared_by_two_workers_and_each_runs_once(
    database: PostgresDatabase, url: str, tmp_path: Path
) -> None:
    clock = FakeClock(micros(datetime(2026, 6, 1, 7, 59, 30, tzinfo=UTC)))
    other = await open_postgres(url)
    one = await set_up(tmp_path, model="echo", database=_any(database), clock=clock)
    two = await set_up(tmp_path, model="echo", database=_any(other), clock=clock)
    both = [Cron(stage.engine, "scripted:echo") for stage in (one, two)]
    for number in range(5):
        first = next_slot("* * * * *", "UTC", clock.now())
        made = Schedule(f"cron-{number}", "* * * * *", "UTC", "hi", None, None, "run", first, clock.now())
        await database.write(schedules.add, made)
    for _ in range(5):
        clock.pass_seconds(60)
        await asyncio.gather(*(cron.run_due() for cron in both))
        await one.engine.settled()
        await two.engine.settled()
    counts = [await database.read(schedules.count_slots, f"cron-{number}") for number in range(5)]
    await one.engine.close()
    await two.engine.close()
    await other.close()

    assert Counter(map(str, counts)) == {"{'done': 5}": 5}


def _any(database: PostgresDatabase) -> Any:
    """The stage is written for SQLite but uses nothing that only SQLite has."""
    return database
