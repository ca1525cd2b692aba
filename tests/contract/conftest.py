"""The stores that must fulfil the contract, and other processes that share them."""

import asyncio
import json
import sys
from collections.abc import AsyncIterator, Awaitable, Callable
from pathlib import Path

import pytest

from holdfast.model.event import SessionOpened
from holdfast.model.ids import SESSION, Ids
from holdfast.model.session import Session
from holdfast.store.database import Database
from holdfast.store.repos import sessions
from tests.contract.store_urls import KINDS, new_place, open_place
from tests.fakes.clock import FakeClock

ROOT = Path(__file__).parents[2]
NewSession = Callable[..., Awaitable[Session]]


class Child:
    """A process that has opened the store and waits for a command."""

    def __init__(self, process: asyncio.subprocess.Process) -> None:
        self._process = process

    async def ready(self) -> None:
        assert self._process.stdout is not None
        assert await self._process.stdout.readline() == b"ready\n", "the other process could not open the store"

    async def go(self) -> object:
        """Let it act; returns the result."""
        out, _ = await self._process.communicate(b"go\n")
        assert self._process.returncode == 0
        return json.loads(out)


Spawn = Callable[..., Awaitable[Child]]


@pytest.fixture(params=KINDS)
def place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """The URL of this test's store, which exists only if the test also uses the fixture `database`."""
    return new_place(request.param, tmp_path, migrated="database" in request.fixturenames)


@pytest.fixture
async def database(place: str) -> AsyncIterator[Database]:
    opened = await open_place(place)
    yield opened
    await opened.close()


@pytest.fixture
async def another(place: str, database: Database) -> AsyncIterator[Database]:
    """The same store, opened a second time."""
    opened = await open_place(place)
    yield opened
    await opened.close()


@pytest.fixture
def spawn(place: str, database: Database) -> Spawn:
    """Starts a process that has the same store open and is ready to act."""

    async def start(*args: object) -> Child:
        process = await asyncio.create_subprocess_exec(
            *(sys.executable, "-m", "tests.contract.child", place, *map(str, args)),
            cwd=ROOT,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
        )
        child = Child(process)
        await child.ready()
        return child

    return start


@pytest.fixture
def new_session(database: Database, ids: Ids, clock: FakeClock) -> NewSession:
    """Creates one more session, a microsecond after the last, so that their order is defined."""

    async def create(session_id: str | None = None, **opened: object) -> Session:
        clock.pass_seconds(0.000_001)
        facts = SessionOpened(**{"source": "chat", **opened})
        session, _ = await database.write(sessions.create, session_id or ids.make(SESSION), facts, at=clock.now())
        return session

    return create


@pytest.fixture
async def session(new_session: NewSession) -> Session:
    return await new_session()
