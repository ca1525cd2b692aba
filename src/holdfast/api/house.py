"""What every route works with."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field
from pathlib import Path

from starlette.requests import Request

from holdfast.api.listing import Listing
from holdfast.api.tally import Tally
from holdfast.engine.engine import Engine
from holdfast.engine.janitor import Sweep
from holdfast.eventstream import HEARTBEAT_SECONDS
from holdfast.processes.registry import Registry
from holdfast.settings import Settings
from holdfast.store.database import Database
from holdfast.store.search import SearchIndex


@dataclass(frozen=True, slots=True)
class House:
    """The engine behind the API, and what was set."""

    engine: Engine
    database: Database
    settings: Settings
    listing: Listing
    workdir: Path
    """Where the tools of new sessions work."""
    search: Callable[[], Awaitable[SearchIndex]]
    processes: Registry
    sweep: Callable[[], Awaitable[Sweep]]
    """Sees to what the dead have left."""
    window: Callable[[str], int]
    """How many tokens the context of a model may take."""
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when streams that have no end of their own must end."""
    tally: Tally = field(default_factory=Tally)


def of(request: Request) -> House:
    """The house that a request has come to."""
    house = request.app.state
    assert isinstance(house, House), "the application is made with it"
    return house
