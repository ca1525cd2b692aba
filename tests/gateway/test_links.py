"""A platform's connection: one worker at a time, begun anew when it is lost, and always shown as it is."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.together import stop
from holdfast.gateway.deliver import Pace
from holdfast.gateway.gateway import Gateway, Link
from holdfast.gateway.port import Options, Platform
from holdfast.model.errors import Invalid, Unavailable
from holdfast.model.times import Clock
from holdfast.settings import Gateway as GatewaySettings
from holdfast.settings import Options as Given
from holdfast.settings import Settings
from holdfast.store import platforms, workers
from holdfast.store.platforms import Platform as Row
from holdfast.store.sqlite import open_sqlite
from tests.engine.stage import Stage, set_up
from tests.fakes.channel import FakeChannel, FakeConnection, connecting
from tests.gateway.hall import ALICE, no_index, opened, settings


async def row(stage: Stage, **wanted: object) -> Row:
    """The platform's state, once it is as wanted."""
    async with asyncio.timeout(20):
        while True:
            found = await stage.database.read(platforms.get, "fake")
            if found is not None and all(getattr(found, name) == value for name, value in wanted.items()):
                return found
            await asyncio.sleep(0.02)


async def test_one_worker_serves_a_platform_and_another_takes_over_when_it_is_gone(tmp_path: Path) -> None:
    first, second = FakeChannel(), FakeChannel()
    one = await set_up(tmp_path, model="echo")
    two = await set_up(tmp_path, model="echo", database=one.database)
    async with AsyncExitStack() as service:
        await service.enter_async_context(opened(tmp_path, first, stage=one))
        await row(one, state="connected", worker_id=one.worker_id)
        async with opened(tmp_path, second, stage=two):
            await second.say("nobody listens here yet")
            await first.say("hello")
            await first.until(lambda: bool(first.arrived))
            assert not second.arrived
            await one.database.write(workers.bury, one.worker_id, "it is dead", at=1)
            await row(two, state="connected", worker_id=two.worker_id)
            await first.say("are you there?")  # the buried one may still bring what it hears, but deals with nothing
            await second.until(lambda: any("are you there?" in text for text in second.texts))
            await service.aclose()

    assert [message.text for message in first.arrived] == ["You said: hello"]
    assert [message.text for message in second.arrived].count("You said: are you there?") == 1


async def test_a_worker_that_leaves_lets_go_of_its_platforms(tmp_path: Path) -> None:
    stage = await set_up(tmp_path, model="echo")
    async with opened(tmp_path, FakeChannel(), stage=stage):
        await row(stage, state="connected")

    assert (await row(stage, state="off")).worker_id is None


async def test_a_connection_that_fails_is_begun_anew_from_where_it_was(tmp_path: Path) -> None:
    channel, positions = FakeChannel(), []
    stage = await set_up(tmp_path, model="echo")

    class Failing(FakeConnection):
        async def receive(self, inlet: object, position: str) -> None:
            positions.append(position)
            if len(positions) == 1:
                await inlet.take([], position="here")  # type: ignore[attr-defined]
                raise Unavailable("the cable was cut")
            await super().receive(inlet, position)  # type: ignore[arg-type]

    @asynccontextmanager
    async def connect(options: Options, clock: Clock) -> AsyncIterator[Platform]:
        yield Failing(channel)

    link = Link(stage.engine, settings(tmp_path), "fake", connect, no_index, Pace(first=0.05, last=1.0))
    task = asyncio.create_task(link.work())
    await channel.say("hello")
    await channel.until(lambda: bool(channel.arrived))
    found = await row(stage, state="connected")
    await stop(task)

    assert positions == ["", "here"]
    assert found.error == "the cable was cut"
    assert found.error_at is not None


class Flaky:
    """A store that is away for the first writes of a kind."""

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


async def test_a_store_that_is_away_for_a_while_does_not_end_the_service(tmp_path: Path) -> None:
    channel = FakeChannel()
    away = [platforms.take, platforms.note, platforms.take]
    store: Any = Flaky(await open_sqlite(tmp_path / "holdfast.db"), [*away])
    stage = await set_up(tmp_path, model="echo", database=store)
    pace = Pace(first=0.05, last=1.0)
    link = Link(stage.engine, settings(tmp_path), "fake", connecting(channel), no_index, pace)  # type: ignore[arg-type]
    task = asyncio.create_task(link.work())
    await channel.say("hello")
    await channel.until(lambda: bool(channel.arrived))
    await stop(task)

    assert channel.texts == ["You said: hello"]


async def test_a_library_that_does_not_hear_that_it_should_stop_is_told_again(tmp_path: Path) -> None:
    channel, told = FakeChannel(), []
    stage = await set_up(tmp_path, model="echo")

    class Deaf(FakeConnection):
        async def receive(self, inlet: object, position: str) -> None:
            while len(told) < 2:
                try:
                    await super().receive(inlet, position)  # type: ignore[arg-type]
                except asyncio.CancelledError:
                    told.append("stop")
            raise asyncio.CancelledError

    @asynccontextmanager
    async def connect(options: Options, clock: Clock) -> AsyncIterator[Platform]:
        yield Deaf(channel)

    link = Link(stage.engine, settings(tmp_path), "fake", connect, no_index)
    task = asyncio.create_task(link.work())
    await row(stage, state="connected")
    await stop(task)

    assert told == ["stop", "stop"]
    await row(stage, state="off")


async def test_wrong_settings_are_shown_and_touch_no_other_platform(tmp_path: Path) -> None:
    channel = FakeChannel()
    stage = await set_up(tmp_path, model="echo")
    given = Settings(
        home=tmp_path,
        store=f"sqlite:///{tmp_path}/holdfast.db",
        model="scripted:echo",
        gateway=GatewaySettings(platforms={"fake": Given(ALICE), "bad": Given({"kind": "fake", "alow": ["me"]})}),
    )
    gateway = Gateway(stage.engine, given, no_index, {"fake": connecting(channel)})  # type: ignore[dict-item]
    task = asyncio.create_task(gateway.work())
    await channel.say("hello")
    await channel.until(lambda: bool(channel.arrived))
    async with asyncio.timeout(10):
        while (bad := await stage.database.read(platforms.get, "bad")) is None or not bad.error:
            await asyncio.sleep(0.02)
    await stop(task)

    assert "unknown setting alow" in bad.error
    assert "known here are allow" in bad.error


async def test_a_kind_that_is_not_known_stops_the_start(tmp_path: Path) -> None:
    stage = await set_up(tmp_path, model="echo")
    given = Settings(
        home=tmp_path,
        store="sqlite:///x",
        model="scripted:echo",
        gateway=GatewaySettings(platforms={"pigeon": Given()}),
    )
    with pytest.raises(Invalid, match="no platform 'pigeon'; known are webhook, email"):
        Gateway(stage.engine, given, no_index)


@pytest.mark.parametrize(("home", "why"), [("nowhere", "is no chat"), ("pigeon:1", r"there is no \[gateway.pigeon\]")])
async def test_a_home_channel_that_is_none_stops_the_start(tmp_path: Path, home: str, why: str) -> None:
    stage = await set_up(tmp_path, model="echo")
    gateway = GatewaySettings(home_channel=home, platforms={"fake": Given(ALICE)})
    given = Settings(home=tmp_path, store="sqlite:///x", model="scripted:echo", gateway=gateway)

    with pytest.raises(Invalid, match=why):
        Gateway(stage.engine, given, no_index, {"fake": connecting(FakeChannel())})  # type: ignore[dict-item]
