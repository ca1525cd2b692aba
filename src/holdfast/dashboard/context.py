"""What every page depends on, and the ports that the composition root fills."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass
from typing import Protocol

from starlette.requests import Request

from holdfast.dashboard.change_poller import ChangePoller
from holdfast.dashboard.peers import PeerPoller
from holdfast.dashboard.shared_responses import SharedResponses
from holdfast.dashboard.timeline import DayTimeline
from holdfast.engine.engine import Engine
from holdfast.model.process_identity import Identity
from holdfast.processes.registry import ProcessRegistry
from holdfast.settings import Settings
from holdfast.store.database import Database
from holdfast.store.repos.schedules import Schedule
from holdfast.store.search.index import SearchIndex

ACTOR = "the dashboard"
"""How the log names whoever acts in it."""


class SchedulePort(Protocol):
    """Adds and runs schedules."""

    async def add(self, when: str, timezone: str, prompt: str, deliver: str | None, missed: str) -> Schedule:
        """Add a schedule. Raises Invalid for an invalid expression, time zone or address."""

    async def run(self, schedule: Schedule) -> str:
        """Run its prompt now. Returns the id of the session."""


@dataclass(frozen=True, slots=True)
class DashboardContext:
    """The engine, the store and the settings behind the pages."""

    engine: Engine
    database: Database
    settings: Settings
    identity: Identity
    search: Callable[[], Awaitable[SearchIndex]]
    schedules: SchedulePort
    peers: PeerPoller
    changes: ChangePoller
    timeline: DayTimeline
    responses: SharedResponses
    stopping: asyncio.Event
    """Set when the server is about to stop; streams then end."""
    search_used: asyncio.Event
    """Set by the first search: from then on the index is kept up to date."""

    @property
    def now(self) -> int:
        return self.engine.services.clock.now()

    @property
    def registry(self) -> ProcessRegistry | None:
        """The registry of background processes, if this engine has one."""
        found = self.engine.processes
        return found if isinstance(found, ProcessRegistry) else None


def get_context(request: Request) -> DashboardContext:
    """The context of the application that handles a request."""
    context = request.app.state
    assert isinstance(context, DashboardContext), "Dashboard sets it"
    return context
