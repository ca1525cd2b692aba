"""Puts the dashboard together: what its pages ask the engine, the store, the schedules and other servers for."""

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import cast

from holdfast import config
from holdfast.app import App
from holdfast.assemble import policies, window
from holdfast.cron import Cron, check, following
from holdfast.dashboard.day import Day
from holdfast.dashboard.desk import Desk
from holdfast.dashboard.fleet import Fleet
from holdfast.dashboard.pulse import Pulse
from holdfast.engine.engine import Engine
from holdfast.engine.fill import fill_of
from holdfast.engine.janitor import first_look
from holdfast.engine.processes import running
from holdfast.engine.reset import outlook
from holdfast.engine.together import stop
from holdfast.engine.why import Why, explain
from holdfast.identity import identity
from holdfast.model.errors import Invalid
from holdfast.model.session import Session
from holdfast.settings import Settings
from holdfast.store import approvals, log, outbox, resets, schedules, workers
from holdfast.store.database import Transaction
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
        explain=explaining(engine, app.settings),
        timetable=Times(engine, app.settings.model),
        fleet=Fleet(app.settings.fleet.peers, key, clock),
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


def explaining(engine: Engine, settings: Settings) -> Callable[[Transaction, Session], Why]:
    """What `holdfast why` says, from within a worker."""
    ours, clock = identity(), engine.ground.clock
    known = policies(settings, config.environment().get("TZ", ""))

    def work(tx: Transaction, session: Session) -> Why:
        owner = workers.get(tx, session.worker_id) if session.worker_id else None
        entries = log.read_whole(tx, session)
        return explain(
            session,
            entries,
            owner,
            None if owner is None else first_look(owner, ours),
            approvals.unanswered(tx, session.id),
            idle_minutes=settings.api.idle_minutes,
            fill=fill_of(entries, window(settings, session.summary.model), settings.context.compact_at),
            processes=running(tx, session.id, ours, clock.monotonic()),
            reset=outlook(known, session, resets.held(tx, session), clock.now()),
        )

    return work


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
