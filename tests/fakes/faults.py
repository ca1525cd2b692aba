"""External calls of background tasks that fail, once or for ten seconds, and a worker that makes them."""

import asyncio
import errno
import os
import pathlib
import threading
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.model.event import SessionOpened
from holdfast.model.ids import SESSION
from holdfast.store.database import Database
from holdfast.store.repos import sessions
from holdfast.supervisor import BackgroundTask, Supervisor
from tests.engine.stage import Stage, set_up
from tests.fakes.channel import FakeChannel
from tests.fakes.clock import FakeClock

LONG = 10.0
"""Seconds of the fake clock for which calls fail."""
LIMIT = 30.0


class Faults:
    """Makes chosen calls fail: the first one, or all of them for a while."""

    def __init__(self, call: str, number: int, seconds: float, clock: FakeClock) -> None:
        self.call = call
        self._error = OSError(number, os.strerror(number))
        self.clock = clock
        self._until = clock.monotonic() + seconds if seconds else None
        self.is_long = seconds > 0
        self.raised = 0
        self._lock = threading.Lock()

    def meet(self, call: str) -> None:
        with self._lock:
            over = self.raised > 0 if self._until is None else self.clock.monotonic() >= self._until
            if call != self.call or over:
                return
            self.raised += 1
        raise self._error


class FaultyDatabase:
    """A store whose calls fail as the test wants."""

    def __init__(self, inner: Database, faults: Faults) -> None:
        self._inner = inner
        self._faults = faults

    async def read(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._faults.meet("read")
        return await self._inner.read(work, *args, **kwargs)

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._faults.meet("write")
        return await self._inner.write(work, *args, **kwargs)

    def write_from_thread(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._faults.meet("write")
        return self._inner.write_from_thread(work, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class FaultyPath(pathlib.PosixPath):
    """A file whose stat or read fails when the test wants. `of` creates one."""

    faults: Faults

    @staticmethod
    def of(path: Path, faults: Faults) -> Path:
        kind: Any = type("FaultyPath", (FaultyPath,), {"faults": faults})
        found: Path = kind(path)
        return found

    def stat(self, **kwargs: Any) -> os.stat_result:
        self.faults.meet("stat")
        return super().stat(**kwargs)

    def read_bytes(self) -> bytes:
        self.faults.meet("file")
        return super().read_bytes()


@dataclass
class Scene:
    """A store, a worker on it whose calls fail, and a supervisor whose delays move the clock."""

    stage: Stage
    clock: FakeClock
    faults: Faults
    folder: Path
    monkeypatch: pytest.MonkeyPatch
    channel: FakeChannel = field(default_factory=FakeChannel)

    def __post_init__(self) -> None:
        self.faulty: Any = FaultyDatabase(self.stage.database, self.faults)
        self.supervisor = Supervisor(self.clock, sleep=self.sleep)
        self.stage.engine.supervisor = self.supervisor

    async def sleep(self, seconds: float) -> None:
        self.clock.pass_seconds(seconds)
        await asyncio.sleep(0)

    @property
    def services(self) -> Any:
        return replace(self.stage.engine.services, database=self.faulty)

    async def session(self, **more: Any) -> str:
        made = self.stage.engine.services.ids.make(SESSION)
        opened = SessionOpened(source="chat", model="scripted:echo")
        await self.stage.database.write(sessions.create, made, opened, at=self.clock.now(), **more)
        return made


Done = Callable[[], Awaitable[bool]]
Running = AsyncIterator[Done]


@asynccontextmanager
async def cycles(scene: Scene, work: Any) -> Running:
    async def done() -> bool:
        return any(one.name == "task" and one.cycle_at is not None for one in scene.supervisor.statuses())

    async with scene.supervisor.running({"task": BackgroundTask(work, 1)}):
        yield done


def matrix(rows: list[tuple[Any, str]]) -> Callable[[Any], Any]:
    """Each task with each of its calls, each error, once and for ten seconds."""

    def marked(test: Any) -> Any:
        names = [f"{task.__name__}-{call}" for task, call in rows]
        numbers = [errno.EMFILE, errno.EIO, errno.EACCES]
        test = pytest.mark.parametrize(("task", "call"), rows, ids=names)(test)
        test = pytest.mark.parametrize("number", numbers, ids=["EMFILE", "EIO", "EACCES"])(test)
        return pytest.mark.parametrize("seconds", [0.0, LONG], ids=["once", "for-10-s"])(test)

    return marked


async def work_is_done_after(faults: Faults, task: Any, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Run a task whose calls fail until its work is done."""
    stage = await set_up(folder, model="echo", clock=faults.clock)
    scene = Scene(stage, faults.clock, faults, folder, monkeypatch)
    try:
        async with task(scene) as done, asyncio.timeout(LIMIT):
            while not (scene.faults.raised and await done()):
                await asyncio.sleep(0.01)
    finally:
        await scene.supervisor.close()
        await stage.engine.close()
        await stage.database.close()
