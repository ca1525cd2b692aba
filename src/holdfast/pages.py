"""Puts the dashboard together: what its pages ask the engine, the store, the schedules and other servers for."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import cast

from holdfast import config
from holdfast.app import App
from holdfast.cron import Cron, check, following
from holdfast.dashboard.day import Day
from holdfast.dashboard.desk import Desk
from holdfast.dashboard.fleet import Fleet
from holdfast.dashboard.pulse import Pulse
from holdfast.engine.engine import Engine
from holdfast.engine.together import stop
from holdfast.identity import identity
from holdfast.model.errors import Invalid
from holdfast.store import outbox, schedules
from holdfast.store.schedules import PREFIX, Missed, Schedule


def desk(engine: Engine, app: App, key: str, leaving: asyncio.Event) -> Desk:
    """What the pages work with. `leaving` is set when their streams are to end."""
    clock = engine.ground.clock
    return Desk(
        engine=engine,
        database=app.database,
        settings=app.settings,
        ours=identity(),
        search=app.search,
        timetable=Times(engine, app.settings.model),
        fleet=Fleet(app.settings.fleet.peers, key, clock, app.database),
        pulse=Pulse(app.database),
        day=Day(app.database),
        leaving=leaving,
        searched=asyncio.Event(),
        workdir=config.workdir(),
    )


@asynccontextmanager
async def open_desk(desk: Desk) -> AsyncIterator[None]:
    """While this lasts, pages hear of changes and other servers are asked."""
    tasks = [
        asyncio.create_task(desk.pulse.work(), name="pulse"),
        asyncio.create_task(desk.fleet.work(), name="fleet"),
        asyncio.create_task(_index(desk), name="index"),
    ]
    try:
        yield
    finally:
        await stop(*tasks)


async def _index(desk: Desk) -> None:
    """Keep the search index up to date once somebody has searched."""
    await desk.searched.wait()
    await (await desk.search()).follow()


class Times:
    """The schedules, for the dashboard."""

    def __init__(self, engine: Engine, model: str) -> None:
        self._engine = engine
        self._cron = Cron(engine, model)
        self._tz = config.environment().get("TZ", "")

    async def add(self, when: str, timezone: str, prompt: str, deliver: str | None, missed: str) -> Schedule:
        check(when, timezone)
        if not prompt.strip():
            raise Invalid("there is nothing to say: the prompt is empty")
        if deliver is not None:
            outbox.address_of(deliver)
        ground = self._engine.ground
        at = ground.clock.now()
        first = following(when, timezone, at, self._tz)
        added = Schedule(
            ground.ids.make(PREFIX), when, timezone, prompt, deliver, None, cast("Missed", missed), first, at
        )
        await ground.database.write(schedules.add, added)
        return added

    async def run(self, schedule: Schedule) -> str:
        return (await self._cron.run_now(schedule)).session.id
