"""A worker's heartbeat comes from a separate thread and distinguishes a busy event loop from a dead process."""

import asyncio
import contextlib
import threading
import time
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.liveness.heartbeat import Heartbeat
from holdfast.engine.liveness.janitor import assess_worker
from holdfast.engine.services import EngineServices
from holdfast.engine.streaming.bus import Bus
from holdfast.model.errors import Conflict, Unavailable
from holdfast.model.ids import WORKER, Ids
from holdfast.process_lookup import current_identity
from holdfast.store.database import Database
from holdfast.store.repos import sessions, workers
from holdfast.store.repos.workers import Worker
from holdfast.store.sqlite.driver import SqliteDatabase, open_sqlite
from holdfast.supervisor import Supervisor
from tests.engine.stage import Stage, set_up
from tests.fakes.clock import FakeClock

QUICK = 0.01
"""Seconds between two heartbeats."""
LIMIT = 30.0


def seen(stage: Stage) -> Worker:
    """The worker's row, read without its event loop."""
    worker = stage.database.write_from_thread(workers.get, stage.worker_id)
    assert worker is not None
    return worker


def wait_for(true: Callable[[], bool]) -> None:
    """Block until the condition holds; in the event loop's thread this blocks the loop."""
    end = time.monotonic() + LIMIT
    while not true():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(QUICK)


def never(error: Conflict) -> None:
    raise AssertionError(f"nobody was declared dead: {error}")


async def test_a_worker_writes_heartbeats_only_while_it_is_open(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path))

    async with Heartbeat(stage.engine.services, QUICK, never, stage.engine.supervisor):
        await asyncio.to_thread(wait_for, lambda: seen(stage).beat >= 3)
    last = seen(stage)

    assert last.beat_at > last.started_at
    assert "holdfast-beat" not in {thread.name for thread in threading.enumerate()}


async def test_promise_10_a_blocked_event_loop_is_reported_as_stalled_and_not_reaped(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path))
    stages.append(other := await set_up(tmp_path, database=stage.database))
    session = await stage.session(source="chat", own=True)
    before = stage.engine.services.clock.now()

    async with Heartbeat(stage.engine.services, QUICK, never, stage.engine.supervisor):
        wait_for(lambda: seen(stage).stalled_since is not None)  # blocks the loop, not the heartbeats
        first = seen(stage)
        wait_for(lambda: seen(stage).beat > first.beat + 5)
        stalled = seen(stage)
        await other.janitor().sweep()
        await asyncio.to_thread(wait_for, lambda: seen(stage).stalled_since is None)

    assert assess_worker(stalled, current_identity()).state == "stalled"
    assert stalled.stalled_since == first.stalled_since, "since when, not for how many heartbeats"
    assert stalled.stalled_since is not None
    assert stalled.stalled_since >= before
    after = await other.database.read(sessions.get, session.id)
    assert (after.state, after.owner_worker) == ("waiting", stage.worker_id)


def test_promise_10_a_loop_that_does_not_run_between_two_lines_of_a_chat_is_not_stalled(tmp_path: Path) -> None:
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        stage = runner.run(_begin(tmp_path, stack))
        wait_for(lambda: seen(stage).beat >= 5)  # the loop does not run now
        at_the_prompt = seen(stage)
        runner.run(asyncio.sleep(0))
        wait_for(lambda: seen(stage).beat >= at_the_prompt.beat + 5)
        later = seen(stage)
        runner.run(stack.aclose())

    assert (at_the_prompt.stalled_since, later.stalled_since) == (None, None)


async def _begin(folder: Path, stack: contextlib.AsyncExitStack) -> Stage:
    stage = await set_up(folder)
    stack.push_async_callback(stage.database.close)
    await stack.enter_async_context(Heartbeat(stage.engine.services, QUICK, never, stage.engine.supervisor))
    return stage


async def test_a_worker_that_was_declared_dead_is_notified_once_and_stops_its_heartbeat(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path))
    told: list[Conflict] = []

    def die(error: Conflict) -> None:
        told.append(error)
        stage.engine.declare_dead(error)

    async with Heartbeat(stage.engine.services, QUICK, die, stage.engine.supervisor):
        await asyncio.to_thread(wait_for, lambda: seen(stage).beat >= 1)
        await stage.database.write(workers.mark_dead, stage.worker_id, "silent for 91 s", at=1)
        with pytest.raises(Conflict, match=f"{stage.worker_id} was declared dead"):
            await asyncio.wait_for(stage.engine.death, LIMIT)
        at_death = seen(stage).beat
        await asyncio.to_thread(
            wait_for, lambda: "holdfast-beat" not in {thread.name for thread in threading.enumerate()}
        )

    assert len(told) == 1
    assert seen(stage).beat == at_death


async def test_a_heartbeat_after_an_orderly_shutdown_is_no_death(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await set_up(tmp_path)
    told: list[Conflict] = []

    def die(error: Conflict) -> None:
        told.append(error)
        stage.engine.declare_dead(error)

    async with Heartbeat(stage.engine.services, QUICK, die, stage.engine.supervisor):
        await stage.engine.close()
        while not told:
            await asyncio.sleep(0.01)
    await stage.database.close()

    assert not stage.engine.death.done()
    assert "declared dead" not in caplog.text


class Away:
    """A store that cannot be written to for the first few times."""

    def __init__(self, inner: SqliteDatabase, times: int) -> None:
        self._inner = inner
        self.left = times

    def write_from_thread(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.left -= 1
        if self.left >= 0:
            raise Unavailable("the store is locked; try again")
        return self._inner.write_from_thread(work, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def test_a_heartbeat_that_could_not_be_saved_does_not_count(
    tmp_path: Path, stages: list[Stage], caplog: pytest.LogCaptureFixture
) -> None:
    stages.append(stage := await set_up(tmp_path))
    away: Database = Away(stage.database, 3)  # type: ignore[assignment]

    async with Heartbeat(replace(stage.engine.services, database=away), QUICK, never, stage.engine.supervisor):
        await asyncio.to_thread(wait_for, lambda: seen(stage).beat >= 1)

    assert caplog.text.count("task heartbeat failed") == 1, "the following ones are only counted"


async def test_a_heartbeat_without_an_answer_of_the_store_does_not_count(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """A disk that hangs, or a process that was stopped for long during a heartbeat."""
    database = await open_sqlite(tmp_path / "holdfast.db", busy_seconds=QUICK)
    clock = FakeClock()
    ids = Ids(clock.now)
    services = EngineServices(database, clock, ids, Bus(), ids.make(WORKER), current_identity())
    await database.write(workers.register, services.worker_id, "test", current_identity(), version="0", at=1)
    hangs, released = threading.Event(), threading.Event()

    def hang(tx: object) -> None:
        hangs.set()
        released.wait(LIMIT)

    stuck = asyncio.create_task(database.write(hang))
    await asyncio.to_thread(hangs.wait, LIMIT)
    async with Heartbeat(services, QUICK, never, Supervisor(clock)):
        await asyncio.to_thread(wait_for, lambda: "has not answered" in caplog.text)
        released.set()
        await stuck
        await asyncio.to_thread(wait_for, lambda: _beats(database, services.worker_id) > 3)
    await database.close()


def _beats(database: SqliteDatabase, worker_id: str) -> int:
    try:
        worker = database.write_from_thread(workers.get, worker_id)
    except Unavailable:  # it is still busy with the backlog
        return 0
    return 0 if worker is None else worker.beat
