"""A complete gateway on a real store, with a scripted model and a platform in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.engine.engine import Engine
from holdfast.engine.process_port import ProcessPort
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.voice import Transcriber
from holdfast.providers.scripted import ScriptStep
from holdfast.settings import GatewaySettings, PlatformSettings, Settings
from holdfast.store.repos import inbox, outbox
from holdfast.store.repos.inbox import InboundMessage
from holdfast.store.repos.outbox import Delivery
from holdfast.store.search.index import SearchIndex
from holdfast.store.sqlite.driver import SqliteDatabase
from holdfast.tasks import stop
from holdfast.wiring.engine import reset_policies
from tests.engine.stage import Stage, set_up, with_resets
from tests.fakes.channel import FakeChannel, connecting

ALICE = {"allow": ["alice"]}


def settings(folder: Path, home: str | None = None, **options: object) -> Settings:
    platforms = {"fake": PlatformSettings(options or ALICE)}
    return Settings(
        home=folder,
        store=f"sqlite:///{folder}/holdfast.db",
        model="scripted:echo",
        gateway=GatewaySettings(platforms=platforms, home_channel=home),
    )


async def no_index() -> SearchIndex:
    raise AssertionError("no test searches")


@dataclass
class GatewayFixture:
    stage: Stage
    channel: FakeChannel

    @property
    def database(self) -> SqliteDatabase:
        return self.stage.database

    async def replies(self, count: int) -> list[str]:
        """Wait for that many replies and return their texts."""
        await self.channel.until(lambda: len(self.channel.arrived) >= count)
        return [message.text for message in self.channel.arrived]

    async def dead(self) -> list[InboundMessage]:
        return await self.database.read(inbox.list_dead, 1000)

    async def undelivered(self) -> list[Delivery]:
        return await self.database.read(outbox.list_undelivered, 1000)


async def serve(engine: Engine, gateway: Gateway) -> None:
    """Serve every platform until cancelled."""
    async with engine.supervisor.running(gateway.tasks()):
        await asyncio.Event().wait()


@asynccontextmanager
async def run_gateway(
    folder: Path,
    channel: FakeChannel,
    *steps: ScriptStep,
    stage: Stage | None = None,
    model: str = "echo",
    home: str | None = None,
    registry: ProcessPort | None = None,
    transcriber: Transcriber | None = None,
    **options: object,
) -> AsyncIterator[GatewayFixture]:
    """Run the gateway until the block ends. The store stays open for the next gateway."""
    stage = stage or await set_up(folder, *steps, model="play" if steps else model)
    given = settings(folder, home, **options)
    stage.engine = with_resets(stage.engine, reset_policies(given, ""), registry)
    gateway = Gateway(stage.engine, given, no_index, {"fake": connecting(channel)}, transcriber)  # type: ignore[dict-item]
    task = asyncio.create_task(serve(stage.engine, gateway))
    try:
        yield GatewayFixture(stage, channel)
    finally:
        await stop(task)
