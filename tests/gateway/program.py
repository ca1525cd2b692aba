"""A gateway as a process of its own, which can be told to die at a place: python -m tests.gateway.program HOME [POINT:N]

The points: `received` before what came is kept, `kept` after that and before the platform is told, `unsent` before
a message is handed to the platform, `sent` after that and before it is written down.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast import config
from holdfast.app import open_app
from holdfast.assemble import open_engine
from holdfast.gateway import choose
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.port import Attachment, Connect, Fate, Incoming, Inlet, Options, Outgoing, Platform
from holdfast.model.times import Clock

POINTS = ("received", "kept", "unsent", "sent")


class Fuse:
    def __init__(self, where: str) -> None:
        self._point, _, number = where.partition(":")
        self._left = int(number or 0)

    def reach(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class MortalInlet:
    def __init__(self, inner: Inlet, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse

    async def take(self, payloads: Sequence[str | bytes], position: str | None = None) -> None:
        if payloads:
            self._fuse.reach("received")
        await self._inner.take(payloads, position)
        if payloads:
            self._fuse.reach("kept")

    async def connected(self) -> None:
        await self._inner.connected()

    async def troubled(self, error: str) -> None:
        await self._inner.troubled(error)


class Mortal:
    """A platform around which the process dies."""

    def __init__(self, inner: Platform, fuse: Fuse) -> None:
        self._inner = inner
        self._fuse = fuse
        self.limits = inner.limits

    async def receive(self, inlet: Inlet, position: str) -> None:
        await self._inner.receive(MortalInlet(inlet, self._fuse), position)

    def read(self, payload: str) -> Incoming:
        return self._inner.read(payload)

    async def send(self, message: Outgoing) -> Fate:
        self._fuse.reach("unsent")
        fate = await self._inner.send(message)
        self._fuse.reach("sent")
        return fate

    async def edit(self, chat: str, remote: str, text: str) -> Fate:
        return await self._inner.edit(chat, remote, text)

    async def typing(self, chat: str) -> None:
        await self._inner.typing(chat)

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        await self._inner.fetch(attachment, target, max_bytes)


def mortal(kind: str, fuse: Fuse) -> Connect:
    @asynccontextmanager
    async def connect(options: Options, clock: Clock) -> AsyncIterator[Platform]:
        async with choose.connect(kind)(options, clock) as inner:
            yield Mortal(inner, fuse)

    return connect


async def main(home: Path, where: str) -> None:
    settings, fuse = config.load(home), Fuse(where)
    async with (
        open_app(settings) as app,
        open_engine(app.database, settings, config.environment(), kind="serve", sweeps=True) as engine,
    ):
        kinds = {name: mortal(str(given.get("kind", name)), fuse) for name, given in settings.gateway.platforms.items()}
        for name, given in settings.gateway.platforms.items():
            kinds[str(given.get("kind", name))] = kinds[name]
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        await Gateway(engine, settings, app.search, kinds).work()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""))
