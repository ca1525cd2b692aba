"""Tasks that depend on platforms, other servers, users' files and PostgreSQL work again after those have failed."""

import asyncio
import os
import threading
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.broker import disk_quota as rounds
from holdfast.broker import disk_usage
from holdfast.broker.broker import Broker
from holdfast.broker.disk_quota import DiskQuota
from holdfast.broker.paths import BrokerPaths
from holdfast.broker.users import Users
from holdfast.dashboard.peers import PeerPoller
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.port import DeliveryResult, InboundPort, Outgoing
from holdfast.settings import BrokerSettings as Wanted
from holdfast.store.postgres import driver, failover
from holdfast.store.postgres.connection import connect
from holdfast.store.postgres.driver import open_postgres
from holdfast.store.postgres.failover import ConnectionWatch
from holdfast.tasks import stop
from tests.dashboard.test_peers import recording_server
from tests.fakes.channel import FakeConnection
from tests.fakes.clock import FakeClock
from tests.fakes.faults import Faults, FaultyPath, Running, Scene, matrix, work_is_done_after
from tests.gateway.gateway_fixture import no_index, settings
from tests.postgres.cluster import cluster


@asynccontextmanager
async def platform(scene: Scene) -> Running:
    """A message is received and answered, although calls of the platform have failed."""
    faults, channel = scene.faults, scene.channel

    class Faulty(FakeConnection):
        async def receive(self, intake: InboundPort, position: str) -> None:
            faults.meet("receive")
            await super().receive(intake, position)

        async def send(self, message: Outgoing) -> DeliveryResult:
            faults.meet("send")
            return await super().send(message)

    @asynccontextmanager
    async def opened(options: Any, clock: Any) -> Any:
        faults.meet("connect")
        yield Faulty(channel)

    served = Gateway(scene.stage.engine, settings(scene.folder), no_index, {"fake": opened})
    await channel.say("hello there")

    async def answered() -> bool:
        scene.clock.pass_seconds(1)
        return any("hello there" in message.text for message in channel.arrived)

    async with scene.supervisor.running(served.tasks()):
        yield answered


@asynccontextmanager
async def fleet(scene: Scene) -> Running:
    """Another server is polled, and its state is stored."""
    loop = asyncio.get_running_loop()
    real = loop.sock_connect

    async def sock_connect(*args: Any) -> None:
        scene.faults.meet("connect")
        await real(*args)

    scene.monkeypatch.setattr(loop, "sock_connect", sock_connect)
    async with recording_server() as other:
        url = f"http://127.0.0.1:{other.port}"
        asked = PeerPoller([url.replace("//", "//:hfk-their-key@")], scene.clock, scene.faulty, seconds=0.01)

        async def heard() -> bool:
            scene.clock.pass_seconds(1)
            after = PeerPoller([url], scene.clock, scene.stage.database)
            await after._load()
            return asked.peers[url].state == "online" and after.peers[url].contacted_at is not None

        async with scene.supervisor.running({"task": asked.as_task()}):
            yield heard


def _make_broker(scene: Scene) -> tuple[BrokerPaths, Broker]:
    places = BrokerPaths(scene.folder / "broker", scene.folder / "users")
    places.prepare()
    for name in ("ada", "bo"):
        Users(places.users).add(name, first_uid=None, at=0, make_home=lambda user: None)
    users = Users(FaultyPath.of(places.users, scene.faults))
    return places, Broker(places, users, Wanted(), {}, scene.clock)


@asynccontextmanager
async def broker_users(scene: Scene) -> Running:
    """A removed user is cleaned up, and the broker's status shows it."""
    places, broker = _make_broker(scene)
    for user in Users(places.users).all().values():
        broker.tenant(user)
    Users(places.users).remove("ada")
    real = os.open

    def open_(path: Any, *args: Any, **kwargs: Any) -> int:
        if str(path).endswith(".tmp"):
            scene.faults.meet("write")
        return real(path, *args, **kwargs)

    scene.monkeypatch.setattr(os, "open", open_)

    async def told() -> bool:
        scene.clock.pass_seconds(1)
        return places.status_file.exists() and list(msgspec.json.decode(places.status_file.read_bytes())["users"]) == [
            "bo"
        ]

    async with scene.supervisor.running({"task": broker.as_task()}):
        yield told
    await broker.leave()


@asynccontextmanager
async def broker_disk(scene: Scene) -> Running:
    """The files of a user are counted, those in shared folders too, and the user is stopped."""
    scene.monkeypatch.setattr(rounds, "ROUND_SECONDS", 0.01)
    places, broker = _make_broker(scene)
    await asyncio.to_thread((scene.folder / "shared").mkdir)
    real_scan, real_program = os.scandir, asyncio.create_subprocess_exec

    def scan(path: Any) -> Any:
        scene.faults.meet("scan")
        return real_scan(path)

    async def program(*args: Any, **kwargs: Any) -> Any:
        scene.faults.meet("program")
        return await real_program(*args, **kwargs)

    scene.monkeypatch.setattr(os, "scandir", scan)
    scene.monkeypatch.setattr(asyncio, "create_subprocess_exec", program)
    scene.monkeypatch.setattr(disk_usage, "SHARED_FOLDERS", (scene.folder / "shared",))
    if scene.faults.call == "scan":
        everybody = {name: msgspec.structs.replace(one, uid=54322) for name, one in broker.users.all().items()}
        scene.monkeypatch.setattr(broker.users, "all", lambda: everybody)
    counting = DiskQuota(broker, places, 1, scene.clock.monotonic)
    for name in ("ada", "bo"):
        places.user(name).mkdir(parents=True)
        (places.user(name) / "file").write_bytes(b"x" * 100_000)

    async def counted() -> bool:
        scene.clock.pass_seconds(1)
        return all(name in broker.tenants and broker.tenants[name].full for name in ("ada", "bo"))

    async with scene.supervisor.running({"task": counting.as_task()}):
        yield counted


@asynccontextmanager
async def store_listener(scene: Scene) -> Running:
    """A listener is notified of a commit of another process to PostgreSQL."""
    url = cluster().new_database()

    def faulty(*args: Any, **kwargs: Any) -> Any:
        listens = threading.current_thread().name.startswith("holdfast-listen")
        if listens:
            scene.faults.meet("connect")
        link: Any = connect(*args, **kwargs)
        real = link.notifies

        def notifies(**kwargs: Any) -> Any:
            scene.faults.meet("receive")
            return real(**kwargs)

        if listens:
            link.notifies = notifies
        return link

    other = await open_postgres(url)
    scene.monkeypatch.setattr(driver, "connect", faulty)
    ours = await open_postgres(url, supervisor=scene.supervisor)
    heard = asyncio.Event()

    async def listen() -> None:
        async for _ in ours.listen("news"):
            if _completed(scene, "store listener"):
                heard.set()

    listening = asyncio.create_task(listen())

    async def told() -> bool:
        await other.write(lambda tx: tx.notify("news"))
        return heard.is_set()

    yield told
    await stop(listening)
    await ours.close()
    await other.close()


def _completed(scene: Scene, name: str) -> bool:
    """Whether the task works: it has completed a cycle since it last failed."""
    return any(one.name == name and one.state == "running" and one.failures for one in scene.supervisor.statuses())


class HungLine:
    """A connection to a server that has stopped responding."""

    def __init__(self) -> None:
        self.hung_up = threading.Event()

    def is_waiting_longer_than(self, seconds: float) -> bool:
        return not self.hung_up.is_set()

    def break_unless_connected_to(self, place: object, known: object) -> bool:
        self.hung_up.set()
        return True


@asynccontextmanager
async def store_watch(scene: Scene) -> Running:
    """A connection to a replaced server is closed."""
    scene.monkeypatch.setattr(failover, "LOOK_SECONDS", 0.01)
    url, line, replaced = cluster().new_database(), HungLine(), threading.Event()

    def call() -> Any:
        scene.faults.meet("connect")
        return connect(url)

    report = scene.supervisor.watch("store watch", every=1)
    watch = ConnectionWatch(call, lambda: [line], replaced.set, report)  # type: ignore[list-item,return-value]
    watch.start()

    async def hung_up() -> bool:
        scene.clock.pass_seconds(1)
        return replaced.is_set() and _completed(scene, "store watch")

    yield hung_up
    await asyncio.to_thread(watch.stop)


ROWS: list[tuple[Any, str]] = [
    (platform, "connect"),
    (platform, "receive"),
    (platform, "send"),
    (fleet, "read"),
    (fleet, "write"),
    (fleet, "connect"),
    (broker_users, "stat"),
    (broker_users, "file"),
    (broker_users, "write"),
    (broker_disk, "stat"),
    (broker_disk, "file"),
    (broker_disk, "scan"),
    (broker_disk, "program"),
    (store_listener, "connect"),
    (store_listener, "receive"),
    (store_watch, "connect"),
]


@pytest.mark.slow
@pytest.mark.process
@matrix(ROWS)
async def test_a_task_does_its_work_after_an_external_failure(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, task: Any, call: str, number: int, seconds: float
) -> None:
    await work_is_done_after(Faults(call, number, seconds, FakeClock()), task, tmp_path, monkeypatch)
