"""Replays of turns that may have killed their worker: a tool of one runs only while no tool of another does."""

import asyncio
from collections.abc import Sequence

from holdfast.model.event import Event, ToolStarted
from holdfast.model.turn import DELEGATING
from holdfast.store.database import Database
from holdfast.store.repos import activity
from holdfast.store.repos.leases import Lease

CHECK_SECONDS = 0.5
"""How often a replay checks whether another one still runs a tool."""


def begins_work(events: Sequence[Event]) -> bool:
    """Whether the events begin work in this process that may kill it."""
    return any(isinstance(event, ToolStarted) and event.name not in DELEGATING for event in events)


async def wait_until_alone(database: Database, lease: Lease, turn_id: str) -> None:
    """Wait until no other replay is at work anywhere, and record that this one is."""
    # The other ones may run in other processes, so only the store knows.
    while not await database.write(activity.begin_isolated, lease, turn_id):  # noqa: ASYNC110
        await asyncio.sleep(CHECK_SECONDS)
