"""What every page works with, and the ports that the composition root fills."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol

from starlette.requests import Request

from holdfast.dashboard.day import Day
from holdfast.dashboard.fleet import Fleet
from holdfast.dashboard.pulse import Pulse
from holdfast.engine.engine import Engine
from holdfast.model.identity import Identity
from holdfast.processes.registry import Registry
from holdfast.settings import Settings
from holdfast.store.database import Database
from holdfast.store.schedules import Schedule
from holdfast.store.search import SearchIndex


class Timetable(Protocol):
    """Schedules, as somebody keeps them who knows what their times mean."""

    async def add(self, when: str, timezone: str, prompt: str, deliver: str | None, missed: str) -> Schedule:
        """A new schedule. Raises Invalid for times, a zone or an address that make no sense."""

    async def run(self, schedule: Schedule) -> str:
        """Say its prompt now; the id of the session in which that is done."""


@dataclass(frozen=True, slots=True)
class Desk:
    """The engine behind the pages, and what was set."""

    engine: Engine
    database: Database
    settings: Settings
    ours: Identity
    search: Callable[[], Awaitable[SearchIndex]]
    timetable: Timetable
    fleet: Fleet
    pulse: Pulse
    day: Day
    leaving: asyncio.Event
    """Set when the server is about to stop: streams end then."""
    searched: asyncio.Event
    """Set by the first search: from then on the index is kept up to date."""
    workdir: Path
    """Where the tools of new sessions work."""

    @property
    def now(self) -> int:
        return self.engine.ground.clock.now()

    @property
    def registry(self) -> Registry | None:
        """The background processes, where there is somebody who looks after them."""
        found = self.engine.processes
        return found if isinstance(found, Registry) else None


def of(request: Request) -> Desk:
    """The desk that a request has come to."""
    desk = request.app.state
    assert isinstance(desk, Desk), "the dashboard is made with it"
    return desk
