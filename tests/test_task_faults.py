"""Every background task does its work after any of its external calls has failed, once or for ten seconds."""

import asyncio
import os
import threading
from collections.abc import Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.api import health
from holdfast.cron import Cron
from holdfast.dashboard.change_poller import ChangePoller
from holdfast.engine.engine import Engine
from holdfast.engine.liveness import janitor as janitors
from holdfast.engine.liveness import self_fence as guards
from holdfast.engine.liveness.heartbeat import Heartbeat
from holdfast.engine.liveness.janitor import SWEEP_LIMIT, Janitor, JanitorSettings
from holdfast.engine.liveness.lease_release import LeaseRelease
from holdfast.engine.liveness.self_fence import SelfFence
from holdfast.gateway.gateway import Gateway
from holdfast.process_lookup import current_identity
from holdfast.processes import procfs
from holdfast.processes.registry import ProcessLimits, ProcessRegistry
from holdfast.store.repos import leases, outbox, processes, schedules, sessions, workers
from holdfast.store.repos.outbox import Address, OutboundMessage
from holdfast.store.repos.schedules import Schedule
from holdfast.store.search.index import open_index
from holdfast.store.server_clock import ServerClock
from holdfast.store.sqlite.driver import open_sqlite
from holdfast.supervisor import BackgroundTask, Supervisor, list_down
from holdfast.wiring.engine import open_engine
from tests.engine.stage import gone, set_up
from tests.fakes.channel import connecting
from tests.fakes.clock import FakeClock
from tests.fakes.faults import (
    LIMIT,
    LONG,
    Faults,
    FaultyDatabase,
    FaultyPath,
    Running,
    Scene,
    cycles,
    matrix,
    work_is_done_after,
)
from tests.gateway.gateway_fixture import no_index, settings


@asynccontextmanager
async def janitor(scene: Scene) -> Running:
    """A dead worker is declared dead."""
    dead = await set_up(scene.folder, database=scene.stage.database, clock=scene.clock, who=gone())
    real = janitors.check_process

    def look(*args: Any) -> Any:
        scene.faults.meet("proc")
        return real(*args)

    scene.monkeypatch.setattr(janitors, "check_process", look)
    task = Janitor(scene.services, current_identity(), JanitorSettings(90, 60, 60), lambda _: None)

    async def declared_dead() -> bool:
        found = await scene.stage.database.read(workers.get, dead.worker_id)
        return found is not None and found.ended_at is not None and found.cleared_at is not None

    async with scene.supervisor.running({"task": task.as_task()}):
        yield declared_dead


@asynccontextmanager
async def processes_(scene: Scene) -> Running:
    """The end of a background process is recorded."""
    session = await scene.session()
    limits = ProcessLimits(ttl_seconds=7200, output_bytes=1 << 20)
    environment = {"PATH": os.environ["PATH"]}
    given = (scene.clock, current_identity(), scene.folder / "home", environment, limits)
    started = await ProcessRegistry(scene.stage.database, *given).start("true", scene.folder, session)
    registry = ProcessRegistry(scene.faulty, *given)
    registry._running[started.id] = Path(started.folder)
    real = procfs.read_process_table

    def look() -> Any:
        scene.faults.meet("proc")
        return real()

    scene.monkeypatch.setattr(procfs, "read_process_table", look)

    async def ended() -> bool:
        return (await scene.stage.database.read(processes.get, started.id)).ended_at is not None

    async with scene.supervisor.running({"task": registry.as_task()}):
        yield ended


@asynccontextmanager
async def session_return(scene: Scene) -> Running:
    """A lease that could not be released is released."""
    session = await scene.session()
    database, stage = scene.stage.database, scene.stage
    lease = await database.write(leases.take, session, stage.worker_id)
    stage.scheduler._services = scene.services
    stage.scheduler._returns = LeaseRelease(scene.services.database)
    stage.scheduler._returns.pending[session] = lease
    heartbeat = Heartbeat(stage.engine.services, 3600, lambda _: None, scene.supervisor)

    async def free() -> bool:
        return (await database.read(sessions.get, session)).lease_worker is None

    async with scene.supervisor.running(
        {"task": BackgroundTask(SelfFence(stage.scheduler, heartbeat, None, scene.clock).release_leases, 1)}
    ):
        yield free


class ServerTime:
    """A server with a clock."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock

    async def read(self, work: Callable[..., Any]) -> int:
        return self._clock.now()


@asynccontextmanager
async def server_clock(scene: Scene) -> Running:
    """The store's clock is read."""
    server: Any = FaultyDatabase(ServerTime(scene.clock), scene.faults)  # type: ignore[arg-type]
    clock = ServerClock(scene.clock, server)
    async with cycles(scene, clock.work) as done:
        yield done


@asynccontextmanager
async def cron(scene: Scene) -> Running:
    """A due slot is started."""
    now = scene.clock.now()
    due = Schedule("cron-1", "* * * * *", "local", "Hello", None, None, "run", now, now)
    await scene.stage.database.write(schedules.add, due)
    scene.stage.engine = Engine(scene.services, scene.stage.scheduler, "scripted:play", supervisor=scene.supervisor)

    async def begun() -> bool:
        found = await scene.stage.database.read(schedules.list_slots, "cron-1", 10)
        return bool(found)

    async with scene.supervisor.running({"task": Cron(scene.stage.engine, "scripted:echo").as_task()}):
        yield begun


@asynccontextmanager
async def page_news(scene: Scene) -> Running:
    """Pages are notified of a change."""
    pulse = ChangePoller(scene.faulty, seconds=0.01)
    await scene.session()
    heard = asyncio.Event()

    async def watch() -> None:
        async for position in pulse.watch():
            if position:
                heard.set()

    watching = asyncio.create_task(watch())

    async def told() -> bool:
        return heard.is_set()

    async with scene.supervisor.running({"task": pulse.as_task()}):
        yield told
    watching.cancel()


@asynccontextmanager
async def search_index(scene: Scene) -> Running:
    """The index catches up."""
    index = await open_index(scene.folder / "search.db", scene.stage.database)
    index._database = scene.faulty
    async with cycles(scene, index.follow) as done:
        yield done
    await index.close()


@asynccontextmanager
async def search_file(scene: Scene) -> Running:
    """A message is found, although the file of the index could not be read or opened."""
    session = await scene.session()
    await scene.stage.database.write(sessions.rename, session, "wolfram", at=scene.clock.now())
    index = await open_index(scene.folder / "search.db", scene.stage.database)
    index._file.close()
    index._file.path = FaultyPath.of(scene.folder / "search.db", scene.faults)  # type: ignore[attr-defined]
    real = os.open

    def open_(path: Any, *args: Any, **kwargs: Any) -> int:
        if threading.current_thread().name.startswith("holdfast-search"):
            scene.faults.meet("file")
        return real(path, *args, **kwargs)

    scene.monkeypatch.setattr(os, "open", open_)
    async with cycles(scene, index.follow) as completed:

        async def caught_up() -> bool:
            scene.clock.pass_seconds(1)
            return await completed() and await index.lag() == 0

        yield caught_up
    await index.close()


@asynccontextmanager
async def guard(scene: Scene) -> Running:
    """A worker whose heartbeats are not saved for long stops itself, and continues when one is saved."""
    heartbeat = Heartbeat(scene.services, 0.01, lambda _: None, scene.supervisor)
    watcher = SelfFence(scene.stage.scheduler, heartbeat, LONG / 2, scene.services.clock)
    scene.monkeypatch.setattr(guards, "CHECK_SECONDS", 0.005)
    fenced: list[bool] = []
    real = scene.stage.scheduler.suspend
    scene.monkeypatch.setattr(scene.stage.scheduler, "suspend", lambda error: (fenced.append(True), real(error)))

    async def goes_on() -> bool:
        scene.clock.pass_seconds(0.2)
        found = await scene.stage.database.read(workers.get, scene.stage.worker_id)
        beats = found is not None and found.beat > 0
        return beats and not watcher.is_fenced and bool(fenced) == scene.faults.is_long

    async with heartbeat, scene.supervisor.running({"task": BackgroundTask(watcher.watch, 1)}):
        yield goes_on


@asynccontextmanager
async def store_poller(scene: Scene) -> Running:
    """A listener is notified of a commit of another process."""
    supervisor = scene.supervisor
    ours = await open_sqlite(scene.folder / "holdfast.db", supervisor=supervisor)

    def read(*_: object) -> bool:
        scene.faults.meet("file")
        return True

    ours._poll_connection.exec_trace = read
    heard = asyncio.Event()

    async def listen() -> None:
        async for _ in ours.listen("news"):
            if scene.faults.raised and any(one.cycle_at is not None for one in supervisor.statuses()):
                heard.set()

    listening = asyncio.create_task(listen())

    async def told() -> bool:
        await scene.stage.database.write(workers.record_heartbeat, scene.stage.worker_id, at=scene.clock.now())
        return heard.is_set()

    yield told
    listening.cancel()
    await asyncio.wait({listening})
    await ours.close()


@asynccontextmanager
async def heartbeat(scene: Scene) -> Running:
    """A heartbeat is saved. Its thread has no supervisor to wait for it, so it moves the clock itself."""
    waited = threading.Event()

    async def beaten() -> bool:
        scene.clock.pass_seconds(1)
        found = await scene.stage.database.read(workers.get, scene.stage.worker_id)
        return found is not None and found.beat > 0

    async with Heartbeat(scene.services, 0.01, lambda _: waited.set(), scene.supervisor):
        yield beaten


@asynccontextmanager
async def gateway(scene: Scene) -> Running:
    """A waiting delivery is made, and a message is answered."""
    stage = scene.stage
    to = Address(platform="fake", chat="alice", reply_to="")
    await stage.database.write(outbox.put, "out-1", to, OutboundMessage(text="It is eight."), at=scene.clock.now())
    stage.engine = Engine(scene.services, stage.scheduler, "scripted:play", supervisor=scene.supervisor)
    served = Gateway(stage.engine, settings(scene.folder), no_index, {"fake": connecting(scene.channel)})  # type: ignore[dict-item]

    async def delivered() -> bool:
        scene.clock.pass_seconds(1)
        return any(message.text == "It is eight." for message in scene.channel.arrived)

    async with scene.supervisor.running(served.tasks()):
        yield delivered


TASKS: list[tuple[Any, str]] = [
    (janitor, "read"),
    (janitor, "write"),
    (janitor, "proc"),
    (processes_, "read"),
    (processes_, "write"),
    (processes_, "proc"),
    (session_return, "read"),
    (session_return, "write"),
    (server_clock, "read"),
    (cron, "read"),
    (cron, "write"),
    (page_news, "read"),
    (search_index, "read"),
    (search_file, "stat"),
    (search_file, "file"),
    (guard, "write"),
    (store_poller, "file"),
    (heartbeat, "write"),
    (gateway, "read"),
    (gateway, "write"),
]


@pytest.mark.slow
@pytest.mark.process
@matrix(TASKS)
async def test_a_task_does_its_work_after_its_calls_have_failed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: Any, call: str, number: int, seconds: float
) -> None:
    await work_is_done_after(Faults(call, number, seconds, FakeClock()), task, tmp_path, monkeypatch)


@pytest.mark.process
async def test_a_janitor_that_hangs_is_down_and_the_worker_is_not_ready(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = FakeClock()
    database = await open_sqlite(tmp_path / "holdfast.db")
    asked, real = asyncio.Event(), database.read

    async def read(work: Any, *args: Any, **kwargs: Any) -> Any:
        if work is workers.list_alive:
            asked.set()
            await asyncio.Event().wait()
        return await real(work, *args, **kwargs)

    monkeypatch.setattr(database, "read", read)
    supervisor = Supervisor(clock)
    opened = open_engine(database, settings(tmp_path), {}, kind="serve", sweeps=True, supervisor=supervisor)
    async with opened, asyncio.timeout(LIMIT):
        await asked.wait()
        before = list_down(supervisor.statuses())
        clock.pass_seconds(SWEEP_LIMIT + 2)
        while [one.name for one in list_down(supervisor.statuses())] != ["janitor"]:
            await asyncio.sleep(0.01)
        told = health._tasks(supervisor.statuses())
    await database.close()

    assert before == []
    assert told == "janitor is down: its cycle is overdue"
