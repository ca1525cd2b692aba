"""What every route has access to."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, field

from starlette.requests import HTTPConnection

from holdfast.api.models import ModelList
from holdfast.api.openai.known_messages import MessageMemo
from holdfast.api.store_probe import StoreProbe
from holdfast.engine.engine import Engine
from holdfast.engine.liveness.janitor import SweepReport
from holdfast.process_slots import ProcessSlot
from holdfast.processes.registry import ProcessRegistry
from holdfast.settings import Settings
from holdfast.sse import HEARTBEAT_SECONDS
from holdfast.store.database import Database
from holdfast.store.search.index import SearchIndex

API_USER = "the API"
"""Who did it, in the log: an action that a client of the API requested."""


class RequestCounter:
    """Counts requests since the worker started. Methods and statuses are few, so it stays small."""

    METHODS = ("GET", "POST", "PATCH", "DELETE", "OPTIONS", "HEAD", "PUT")

    def __init__(self) -> None:
        self.requests: Counter[tuple[str, int]] = Counter()
        self.streams = 0
        """Open event streams."""

    def count(self, method: str, status: int) -> None:
        """Count a request; status 0 means the client disconnected before the response."""
        self.requests[method if method in self.METHODS else "other", status] += 1


@dataclass(frozen=True, slots=True)
class ApiContext:
    """The engine, the store and the settings behind the API."""

    engine: Engine
    database: Database
    settings: Settings
    models: ModelList
    search: Callable[[], Awaitable[SearchIndex]]
    processes: ProcessRegistry
    sweep: Callable[[], Awaitable[SweepReport]]
    """Runs one janitor sweep: ends or recovers what dead workers left."""
    window: Callable[[str], int]
    """Returns the size of a model's context window in tokens."""
    heartbeat_seconds: float = HEARTBEAT_SECONDS
    leaving: asyncio.Event = field(default_factory=asyncio.Event)
    """Set at shutdown: endless streams must end."""
    counter: RequestCounter = field(default_factory=RequestCounter)
    probe: StoreProbe = field(default_factory=StoreProbe)
    slot: ProcessSlot | None = None
    """The place of this process, if several serve the address."""
    memo: MessageMemo = field(default_factory=MessageMemo)
    """Messages of earlier requests."""


def get_context(request: HTTPConnection) -> ApiContext:
    """Return the context of the application that received the request."""
    context = request.app.state
    assert isinstance(context, ApiContext), "create_app sets it"
    return context
