"""A whole gateway on a real store, with a model that plays a script and a platform in memory."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

from holdfast.assemble import policies
from holdfast.engine.reset import Resets
from holdfast.engine.together import stop
from holdfast.gateway.gateway import Gateway
from holdfast.providers.scripted import Step
from holdfast.settings import Gateway as GatewaySettings
from holdfast.settings import Options, Settings
from holdfast.store import inbox, outbox
from holdfast.store.inbox import Letter
from holdfast.store.outbox import Delivery
from holdfast.store.search import SearchIndex
from holdfast.store.sqlite import SqliteDatabase
from tests.engine.stage import Stage, set_up
from tests.fakes.channel import FakeChannel, connecting

ALICE = {"allow": ["alice"]}


def settings(folder: Path, **options: object) -> Settings:
    platforms = {"fake": Options(options or ALICE)}
    return Settings(
        home=folder,
        store=f"sqlite:///{folder}/holdfast.db",
        model="scripted:echo",
        gateway=GatewaySettings(platforms=platforms),
    )


async def no_index() -> SearchIndex:
    raise AssertionError("nobody searches here")


@dataclass
class Hall:
    stage: Stage
    channel: FakeChannel

    @property
    def database(self) -> SqliteDatabase:
        return self.stage.database

    async def replies(self, count: int) -> list[str]:
        """The texts that have arrived, once there are that many."""
        await self.channel.until(lambda: len(self.channel.arrived) >= count)
        return [message.text for message in self.channel.arrived]

    async def dead(self) -> list[Letter]:
        return await self.database.read(inbox.dead, 1000)

    async def trouble(self) -> list[Delivery]:
        return await self.database.read(outbox.trouble, 1000)


@asynccontextmanager
async def opened(
    folder: Path, channel: FakeChannel, *steps: Step, stage: Stage | None = None, model: str = "echo", **options: object
) -> AsyncIterator[Hall]:
    """The gateway at work; on leaving, it is stopped and the store stays open for the next one."""
    stage = stage or await set_up(folder, *steps, model="play" if steps else model)
    given = settings(folder, **options)
    stage.engine.resets = Resets(stage.engine.ground, policies(given, ""), None)
    gateway = Gateway(stage.engine, given, no_index, {"fake": connecting(channel)})  # type: ignore[dict-item]
    task = asyncio.create_task(gateway.work())
    try:
        yield Hall(stage, channel)
    finally:
        await stop(task)
