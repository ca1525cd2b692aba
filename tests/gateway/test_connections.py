"""The connection of a platform: one worker at a time, reopened when lost, with its state in the store."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.gateway.delivery import RetrySchedule
from holdfast.gateway.gateway import Gateway, PlatformConnection
from holdfast.gateway.port import Platform, PlatformOptions
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.times import Clock
from holdfast.settings import GatewaySettings, Settings
from holdfast.settings import PlatformSettings as Given
from holdfast.store.repos import platforms, workers
from holdfast.store.repos.platforms import PlatformRow as Row
from holdfast.store.sqlite.driver import open_sqlite
from holdfast.tasks import stop
from tests.engine.stage import Stage, set_up
from tests.fakes.channel import FakeChannel, FakeConnection, connecting
from tests.gateway.gateway_fixture import ALICE, no_index, run_gateway, serve, settings


async def row(stage: Stage, **wanted: object) -> Row:
    """Wait until the platform has this state; return its row."""
    async with asyncio.timeout(20):
        while True:
            found = await stage.database.read(platforms.get, "fake")
            if found is not None and all(getattr(found, name) == value for name, value in wanted.items()):
                return found
            await asyncio.sleep(0.02)


async def test_one_worker_serves_a_platform_and_another_takes_over_when_it_dies(tmp_path: Path) -> None:
    first, second = FakeChannel(), FakeChannel()
    one = await set_up(tmp_path, model="echo")
    two = await set_up(tmp_path, model="echo", database=one.database)
    async with AsyncExitStack() as service:
        await service.enter_async_context(run_gateway(tmp_path, first, stage=one))
        await row(one, state="connected", worker_id=one.worker_id)
        async with run_gateway(tmp_path, second, stage=two):
            await second.say("nobody listens here yet")
            await first.say("hello")
            await first.until(lambda: bool(first.arrived))
            assert not second.arrived
            await one.database.write(workers.mark_dead, one.worker_id, "it is dead", at=1)
            await row(two, state="connected", worker_id=two.worker_id)
            await first.say("are you there?")  # the dead one may still store messages, but does not handle them
            await second.until(lambda: any("are you there?" in text for text in second.texts))
            await service.aclose()

    assert [message.text for message in first.arrived] == ["You said: hello"]
    assert [message.text for message in second.arrived].count("You said: are you there?") == 1


async def test_a_worker_that_stops_releases_its_platforms(tmp_path: Path) -> None:
    stage = await set_up(tmp_path, model="echo")
    async with run_gateway(tmp_path, FakeChannel(), stage=stage):
        await row(stage, state="connected")

    assert (await row(stage, state="off")).worker_id is None


async def test_a_failed_connection_is_reopened_at_its_position(tmp_path: Path) -> None:
    channel, positions = FakeChannel(), []
    stage = await set_up(tmp_path, model="echo")

    class Failing(FakeConnection):
        async def receive(self, intake: object, position: str) -> None:
            positions.append(position)
            if len(positions) == 1:
                await intake.take([], position="here")  # type: ignore[attr-defined]
                raise Unavailable("the cable was cut")
            await super().receive(intake, position)  # type: ignore[arg-type]

    @asynccontextmanager
    async def connect(options: PlatformOptions, clock: Clock) -> AsyncIterator[Platform]:
        yield Failing(channel)

    link = PlatformConnection(
        stage.engine, settings(tmp_path), "fake", connect, no_index, retry=RetrySchedule(first=0.05, last=1.0)
    )
    task = asyncio.create_task(link.work())
    await channel.say("hello")
    await channel.until(lambda: bool(channel.arrived))
    found = await row(stage, state="connected")
    await stop(task)

    assert positions == ["", "here"]
    assert found.error == "the cable was cut"
    assert found.error_at is not None


class Flaky:
    """A store that is unavailable for the first writes of a kind."""

    def __init__(self, inner: Any, works: list[object]) -> None:
        self._inner = inner
        self._works = works

    async def write(self, work: Any, *args: Any, **kwargs: Any) -> Any:
        if work in self._works:
            self._works.remove(work)
            raise Unavailable("the store is away")
        return await self._inner.write(work, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def test_an_unavailable_store_does_not_end_the_service(tmp_path: Path) -> None:
    channel = FakeChannel()
    away = [platforms.take, platforms.record_state, platforms.take]
    store: Any = Flaky(await open_sqlite(tmp_path / "holdfast.db"), [*away])
    stage = await set_up(tmp_path, model="echo", database=store)
    pace = RetrySchedule(first=0.05, last=1.0)
    link = PlatformConnection(stage.engine, settings(tmp_path), "fake", connecting(channel), no_index, retry=pace)  # type: ignore[arg-type]
    task = asyncio.create_task(link.work())
    await channel.say("hello")
    await channel.until(lambda: bool(channel.arrived))
    await stop(task)

    assert channel.texts == ["You said: hello"]


async def test_a_library_that_loses_a_cancellation_is_cancelled_again(tmp_path: Path) -> None:
    channel, told = FakeChannel(), []
    stage = await set_up(tmp_path, model="echo")

    class Uncancellable(FakeConnection):
        async def receive(self, intake: object, position: str) -> None:
            while len(told) < 2:
                try:
                    await super().receive(intake, position)  # type: ignore[arg-type]
                except asyncio.CancelledError:
                    told.append("stop")
            raise asyncio.CancelledError

    @asynccontextmanager
    async def connect(options: PlatformOptions, clock: Clock) -> AsyncIterator[Platform]:
        yield Uncancellable(channel)

    link = PlatformConnection(stage.engine, settings(tmp_path), "fake", connect, no_index)
    task = asyncio.create_task(link.work())
    await row(stage, state="connected")
    await stop(task)

    assert told == ["stop", "stop"]
    await row(stage, state="off")


async def test_wrong_settings_are_reported_and_affect_no_other_platform(tmp_path: Path) -> None:
    channel = FakeChannel()
    stage = await set_up(tmp_path, model="echo")
    given = Settings(
        home=tmp_path,
        store=f"sqlite:///{tmp_path}/holdfast.db",
        model="scripted:echo",
        gateway=GatewaySettings(platforms={"fake": Given(ALICE), "bad": Given({"kind": "fake", "alow": ["me"]})}),
    )
    gateway = Gateway(stage.engine, given, no_index, {"fake": connecting(channel)})  # type: ignore[dict-item]
    task = asyncio.create_task(serve(stage.engine, gateway))
    await channel.say("hello")
    await channel.until(lambda: bool(channel.arrived))
    async with asyncio.timeout(10):
        while (bad := await stage.database.read(platforms.get, "bad")) is None or not bad.error:
            await asyncio.sleep(0.02)
    await stop(task)

    assert "unknown setting alow" in bad.error
    assert "known settings: allow" in bad.error


async def test_an_unknown_kind_prevents_the_start(tmp_path: Path) -> None:
    stage = await set_up(tmp_path, model="echo")
    given = Settings(
        home=tmp_path,
        store="sqlite:///x",
        model="scripted:echo",
        gateway=GatewaySettings(platforms={"pigeon": Given()}),
    )
    with pytest.raises(Invalid, match="unknown platform 'pigeon'; known: webhook, email"):
        Gateway(stage.engine, given, no_index)


@pytest.mark.parametrize(
    ("home", "why"), [("nowhere", "is not a chat"), ("pigeon:1", r"\[gateway.pigeon\] is not configured")]
)
async def test_an_invalid_home_channel_prevents_the_start(tmp_path: Path, home: str, why: str) -> None:
    stage = await set_up(tmp_path, model="echo")
    gateway = GatewaySettings(home_channel=home, platforms={"fake": Given(ALICE)})
    given = Settings(home=tmp_path, store="sqlite:///x", model="scripted:echo", gateway=gateway)

    with pytest.raises(Invalid, match=why):
        Gateway(stage.engine, given, no_index, {"fake": connecting(FakeChannel())})  # type: ignore[dict-item]
