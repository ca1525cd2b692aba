"""Two forgotten preview servers, a gateway, and the daily reset: announced in the chat and the home channel."""

import asyncio
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

import pytest

from holdfast.gateway.gateway import Gateway
from holdfast.model.times import micros
from holdfast.process_lookup import current_identity
from holdfast.processes.registry import ProcessLimits, ProcessRegistry
from holdfast.settings import GatewaySettings, PlatformSettings, ResetSettings, Settings
from holdfast.store.repos import aliases, processes
from holdfast.tasks import stop
from holdfast.wiring.engine import reset_policies
from tests.engine.stage import Stage, set_up, with_resets
from tests.fakes.channel import FakeChannel, connecting
from tests.fakes.clock import FakeClock
from tests.gateway.gateway_fixture import ALICE, GatewayFixture, no_index, serve

pytestmark = pytest.mark.process

SERVER = f"exec {sys.executable} -u -m http.server 0 --bind 127.0.0.1"


def given(folder: Path) -> Settings:
    return Settings(
        home=folder,
        store=f"sqlite:///{folder}/holdfast.db",
        model="scripted:echo",
        reset=ResetSettings(mode="daily", at_hour=6, timezone="UTC"),
        gateway=GatewaySettings(home_channel="fake:home", platforms={"fake": PlatformSettings(ALICE)}),
    )


def with_processes(stage: Stage, clock: FakeClock, settings: Settings) -> ProcessRegistry:
    limits = ProcessLimits(ttl_seconds=48 * 3600, output_bytes=1 << 20)
    environment = {"PATH": os.environ["PATH"]}
    registry = ProcessRegistry(stage.database, clock, current_identity(), settings.home, environment, limits)
    policies = reset_policies(settings, "")
    stage.engine = with_resets(stage.engine, policies, registry, home=settings.gateway.home_channel)
    return registry


async def test_promise_15_the_daily_reset_is_announced_in_the_chat_and_its_servers_in_the_home_channel(
    tmp_path: Path,
) -> None:
    clock, channel, settings = (
        FakeClock(micros(datetime(2026, 5, 18, 12, tzinfo=UTC))),
        FakeChannel(text=4000),
        given(tmp_path),
    )
    stage = await set_up(tmp_path, model="echo", clock=clock)
    registry = with_processes(stage, clock, settings)
    gateway = Gateway(stage.engine, settings, no_index, {"fake": connecting(channel)})  # type: ignore[dict-item]
    task = asyncio.create_task(serve(stage.engine, gateway))
    fixture = GatewayFixture(stage, channel)
    try:
        await channel.say("Show me the site", message="m1")
        await fixture.replies(1)
        old = str(await stage.database.read(aliases.get_channel_session, "fake:c1"))
        servers = [await registry.start(SERVER, tmp_path, old) for _ in range(2)]
        async with asyncio.timeout(30):
            while not all(registry.classify(one).evidence.startswith("listens") for one in await registry.list()):
                clock.pass_seconds(400)  # long enough to count as idle
                await asyncio.sleep(0.2)
                await registry.refresh()
        clock.pass_seconds(20 * 3600)

        assert stage.engine.resets is not None
        [action] = await stage.engine.resets.sweep()
        await fixture.replies(3)
        told = {one.chat: one.text for one in channel.arrived[1:]}
        await channel.say("/undo-reset", message="m2")
        await channel.say("/ps", message="m3")
        replies = await fixture.replies(5)
    finally:
        await stop(task)
        for process in await stage.database.read(processes.list_live):
            await registry.stop(process, "the test is over", grace_seconds=0)

    assert (action.what, action.session_id) == ("reset", old)
    assert told["home"] == told["c1"]
    for server in servers:
        assert f"{server.id} `{SERVER}` (listens on 127.0.0.1:" in told["home"]
        assert server.id in replies[4]
    assert "/undo-reset" in told["c1"]
    assert await stage.database.read(aliases.get_channel_session, "fake:c1") == old
