"""Two preview servers that somebody forgot, a gateway, and the daily reset: told in the chat and to the home channel."""

import asyncio
import os
import sys
from datetime import UTC, datetime
from pathlib import Path

from holdfast.assemble import policies
from holdfast.engine.reset import Resets
from holdfast.engine.together import stop
from holdfast.gateway.gateway import Gateway
from holdfast.identity import identity
from holdfast.model.times import micros
from holdfast.processes.registry import Limits, Registry
from holdfast.settings import Gateway as GatewaySettings
from holdfast.settings import Options, Reset, Settings
from holdfast.store import aliases, processes
from tests.engine.stage import Stage, set_up
from tests.fakes.channel import FakeChannel, connecting
from tests.fakes.clock import FakeClock
from tests.gateway.hall import ALICE, Hall, no_index

SERVER = f"exec {sys.executable} -u -m http.server 0 --bind 127.0.0.1"


def given(folder: Path) -> Settings:
    return Settings(
        home=folder,
        store=f"sqlite:///{folder}/holdfast.db",
        model="scripted:echo",
        reset=Reset(mode="daily", at_hour=6, timezone="UTC"),
        gateway=GatewaySettings(home_channel="fake:home", platforms={"fake": Options(ALICE)}),
    )


def with_processes(stage: Stage, clock: FakeClock, settings: Settings) -> Registry:
    limits = Limits(ttl_seconds=48 * 3600, output_bytes=1 << 20)
    environment = {"PATH": os.environ["PATH"]}
    registry = Registry(stage.database, clock, identity(), settings.home, environment, limits)
    stage.engine.processes = registry
    stage.engine.resets = Resets(
        stage.engine.ground, policies(settings, ""), registry, home=settings.gateway.home_channel
    )
    return registry


async def test_promise_15_the_daily_reset_is_told_in_the_chat_and_its_servers_to_the_home_channel(
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
    task = asyncio.create_task(gateway.work())
    hall = Hall(stage, channel)
    try:
        await channel.say("Show me the site", message="m1")
        await hall.replies(1)
        old = str(await stage.database.read(aliases.current, "fake:c1"))
        servers = [await registry.start(SERVER, tmp_path, old) for _ in range(2)]
        async with asyncio.timeout(30):
            while not all(registry.judge(one).evidence.startswith("listens") for one in await registry.list()):
                clock.pass_seconds(400)  # long enough to be no sign of work any more
                await asyncio.sleep(0.2)
                await registry.refresh()
        clock.pass_seconds(20 * 3600)

        assert stage.engine.resets is not None
        [deed] = await stage.engine.resets.sweep()
        await hall.replies(3)
        told = {one.chat: one.text for one in channel.arrived[1:]}
        await channel.say("/undo-reset", message="m2")
        await channel.say("/ps", message="m3")
        replies = await hall.replies(5)
    finally:
        await stop(task)
        for process in await stage.database.read(processes.live):
            await registry.stop(process, "the test is over", grace_seconds=0)

    assert (deed.what, deed.session_id) == ("reset", old)
    assert told["home"] == told["c1"]
    for server in servers:
        assert f"{server.id} `{SERVER}` (listens on 127.0.0.1:" in told["home"]
        assert server.id in replies[4]
    assert "/undo-reset" in told["c1"]
    assert await stage.database.read(aliases.current, "fake:c1") == old
