"""What every route works with."""

from dataclasses import dataclass
from pathlib import Path

from starlette.requests import Request

from holdfast.api.listing import Listing
from holdfast.api.stream import HEARTBEAT_SECONDS
from holdfast.engine.engine import Engine
from holdfast.settings import Settings
from holdfast.store.database import Database


@dataclass(frozen=True, slots=True)
class House:
    """The engine behind the API, and what was set."""

    engine: Engine
    database: Database
    settings: Settings
    listing: Listing
    workdir: Path
    """Where the tools of new sessions work."""
    heartbeat_seconds: float = HEARTBEAT_SECONDS


def of(request: Request) -> House:
    """The house that a request has come to."""
    house = request.app.state
    assert isinstance(house, House), "the application is made with it"
    return house
