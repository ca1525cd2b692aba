"""Builds the dashboard: its context, background tasks and schedules."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import cast

from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast import config
from holdfast.cron import Cron, check_schedule, next_slot
from holdfast.dashboard.auth import LoginAuth
from holdfast.dashboard.change_poller import ChangePoller
from holdfast.dashboard.context import DashboardContext
from holdfast.dashboard.peers import PeerPoller
from holdfast.dashboard.shared_responses import SharedResponses
from holdfast.dashboard.timeline import DayTimeline
from holdfast.engine.engine import Engine
from holdfast.model.errors import Invalid
from holdfast.process_lookup import current_identity
from holdfast.store.repos import outbox, schedules
from holdfast.store.repos.schedules import PREFIX, Missed, Schedule
from holdfast.store.search.index import FOLLOW_SECONDS
from holdfast.supervisor import BackgroundTask, Completed, until_set
from holdfast.wiring.store import App


def make_context(engine: Engine, app: App, stopping: asyncio.Event) -> DashboardContext:
    """Build the context of the pages. `stopping` is set when their streams must end."""
    clock = engine.services.clock
    return DashboardContext(
        engine=engine,
        database=app.database,
        settings=app.settings,
        identity=current_identity(),
        search=app.search,
        schedules=DashboardSchedules(engine, app.settings.model),
        peers=PeerPoller(app.settings.fleet.peers, clock, app.database, allow_http=app.settings.fleet.allow_http),
        changes=ChangePoller(app.database),
        timeline=DayTimeline(app.database),
        responses=SharedResponses(clock),
        stopping=stopping,
        search_used=asyncio.Event(),
    )


class LazyDashboard:
    """The dashboard as an ASGI application. Its pages and their libraries are loaded at the first request."""

    def __init__(self, context: DashboardContext, key: str) -> None:
        self._context = context
        self._auth = LoginAuth(key, context.database)
        self._pages: ASGIApp | None = None
        self._loading = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async with self._loading:
            if self._pages is None:
                self._pages = await asyncio.to_thread(self._load)
        await self._pages(scope, receive, send)

    def _load(self) -> ASGIApp:
        from holdfast.dashboard.app import Dashboard

        return Dashboard(self._context, self._auth)


@asynccontextmanager
async def run_background_tasks(context: DashboardContext) -> AsyncIterator[None]:
    """Run the tasks that notify pages of changes and poll other servers."""
    tasks = {
        "page news": context.changes.as_task(),
        "fleet": context.peers.as_task(),
        "search index": BackgroundTask(partial(_index, context), FOLLOW_SECONDS),
    }
    async with context.engine.supervisor.running(tasks):
        yield


async def _index(context: DashboardContext, completed: Completed) -> None:
    """Keep the search index up to date after the first search."""
    await until_set(context.search_used, completed)
    await (await context.search()).follow(completed)


class DashboardSchedules:
    """The schedules, for the dashboard."""

    def __init__(self, engine: Engine, model: str) -> None:
        self._engine = engine
        self._cron = Cron(engine, model)
        self._tz = config.environment().get("TZ", "")

    async def add(self, when: str, timezone: str, prompt: str, deliver: str | None, missed: str) -> Schedule:
        check_schedule(when, timezone)
        if not prompt.strip():
            raise Invalid("the prompt is empty")
        if deliver is not None:
            outbox.parse_channel(deliver)
        services = self._engine.services
        at = services.clock.now()
        first = next_slot(when, timezone, at, self._tz)
        added = Schedule(
            services.ids.make(PREFIX), when, timezone, prompt, deliver, None, cast("Missed", missed), first, at
        )
        await services.database.write(schedules.add, added)
        return added

    async def run(self, schedule: Schedule) -> str:
        return (await self._cron.run_now(schedule)).admission.session.id
