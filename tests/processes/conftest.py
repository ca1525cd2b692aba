"""Real processes on a real store, with a fake clock; remaining ones are killed at the end."""

import os
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.model.event import Event, SessionOpened
from holdfast.model.ids import SESSION, Ids
from holdfast.process_lookup import current_identity
from holdfast.processes.registry import ProcessLimits, ProcessRegistry
from holdfast.store.database import Database
from holdfast.store.repos import log, processes, sessions
from tests.fakes.clock import FakeClock

TTL_SECONDS = 7200
LIMITS = ProcessLimits(ttl_seconds=TTL_SECONDS, output_bytes=8 << 20)
NewRegistry = Callable[..., ProcessRegistry]


@pytest.fixture
def workdir(tmp_path: Path) -> Path:
    folder = tmp_path / "work"
    folder.mkdir()
    return folder


@pytest.fixture
async def session_id(database: Database, ids: Ids, clock: FakeClock) -> str:
    made = ids.make(SESSION)
    await database.write(sessions.create, made, SessionOpened(source="api"), at=clock.now())
    return made


@pytest.fixture
async def new_registry(database: Database, clock: FakeClock, tmp_path: Path) -> AsyncIterator[NewRegistry]:
    """Creates registries, each of another worker."""

    def make(**options: object) -> ProcessRegistry:
        given = {"ours": current_identity(), "home": tmp_path / "home", "environment": {"PATH": os.environ["PATH"]}}
        given |= {"limits": LIMITS, "clock": clock}
        return ProcessRegistry(database, **(given | options))  # type: ignore[arg-type]

    yield make
    last = make()
    for process in await database.read(processes.list_live):
        if process.host == current_identity().host and process.boot == current_identity().boot:
            await last.stop(process, "the test is over", grace_seconds=0)


@pytest.fixture
def registry(new_registry: NewRegistry) -> ProcessRegistry:
    return new_registry()


@pytest.fixture
def events(database: Database, session_id: str) -> Callable[[], Awaitable[list[Event]]]:
    async def read() -> list[Event]:
        return [entry.event for entry in await database.read(log.read, session_id)]

    return read
