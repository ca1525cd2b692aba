"""A gateway process that kills itself at a given point: python -m tests.gateway.crashing_gateway HOME [POINT:N]

The points: `received` before a payload is stored, `kept` after that and before it is acknowledged, `unsent` before a
message is sent to the platform, `sent` after that and before the result is recorded.
"""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast import config
from holdfast.gateway.gateway import Gateway
from holdfast.gateway.platforms import registry
from holdfast.gateway.port import (
    Attachment,
    Connect,
    DeliveryResult,
    InboundPort,
    Incoming,
    Outgoing,
    Platform,
    PlatformOptions,
)
from holdfast.model.times import Clock
from holdfast.wiring.engine import open_engine
from holdfast.wiring.store import open_app

POINTS = ("received", "kept", "unsent", "sent")


class CrashTrigger:
    def __init__(self, point: str) -> None:
        self._point, _, number = point.partition(":")
        self._left = int(number or 0)

    def reach(self, point: str) -> None:
        if point == self._point:
            self._left -= 1
            if self._left == 0:
                os.kill(os.getpid(), signal.SIGKILL)


class CrashingIntake:
    def __init__(self, inner: InboundPort, trigger: CrashTrigger) -> None:
        self._inner = inner
        self._trigger = trigger

    async def take(self, payloads: Sequence[str | bytes], position: str | None = None) -> None:
        if payloads:
            self._trigger.reach("received")
        await self._inner.take(payloads, position)
        if payloads:
            self._trigger.reach("kept")

    async def report_connected(self) -> None:
        await self._inner.report_connected()

    async def report_down(self, error: str) -> None:
        await self._inner.report_down(error)


class CrashingPlatform:
    """A platform at whose calls the process dies."""

    def __init__(self, inner: Platform, trigger: CrashTrigger) -> None:
        self._inner = inner
        self._trigger = trigger
        self.limits = inner.limits

    async def receive(self, intake: InboundPort, position: str) -> None:
        await self._inner.receive(CrashingIntake(intake, self._trigger), position)

    def read(self, payload: str) -> Incoming:
        return self._inner.read(payload)

    async def send(self, message: Outgoing) -> DeliveryResult:
        self._trigger.reach("unsent")
        result = await self._inner.send(message)
        self._trigger.reach("sent")
        return result

    async def edit(self, chat: str, remote: str, text: str) -> DeliveryResult:
        return await self._inner.edit(chat, remote, text)

    async def typing(self, chat: str) -> None:
        await self._inner.typing(chat)

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        await self._inner.fetch(attachment, target, max_bytes)


def crashing_connect(kind: str, trigger: CrashTrigger) -> Connect:
    @asynccontextmanager
    async def connect(options: PlatformOptions, clock: Clock) -> AsyncIterator[Platform]:
        async with registry.connect(kind)(options, clock) as inner:
            yield CrashingPlatform(inner, trigger)

    return connect


async def main(home: Path, point: str) -> None:
    settings, trigger = config.load(home), CrashTrigger(point)
    async with (
        open_app(settings) as app,
        open_engine(app.database, settings, config.environment(), kind="serve", sweeps=True) as engine,
    ):
        kinds = {
            name: crashing_connect(str(given.get("kind", name)), trigger)
            for name, given in settings.gateway.platforms.items()
        }
        for name, given in settings.gateway.platforms.items():
            kinds[str(given.get("kind", name))] = kinds[name]
        sys.stdout.write("ready\n")
        sys.stdout.flush()
        async with engine.supervisor.running(Gateway(engine, settings, app.search, kinds).tasks()):
            await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(Path(sys.argv[1]), sys.argv[2] if len(sys.argv) > 2 else ""))
