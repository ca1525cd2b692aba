"""A messaging platform in memory, with failures in both directions."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path

from holdfast.gateway.port import (
    Attachment,
    DeliveryResult,
    DeliveryUnknown,
    InboundPort,
    Incoming,
    Outgoing,
    Platform,
    PlatformLimits,
    PlatformOptions,
    Rejected,
    RetryLater,
    Sent,
)
from holdfast.model.times import Clock
from holdfast.safe_fetch import TooLarge


class FakeChannel:
    """The state of the platform, which survives connections and programs."""

    def __init__(self, **limits: object) -> None:
        self.limits = PlatformLimits(**{"text": 200, **limits})  # type: ignore[arg-type]
        self.posted: asyncio.Queue[str | bytes] = asyncio.Queue()
        self.acknowledged: list[str | bytes] = []
        self.arrived: list[Outgoing] = []
        self.shown: dict[str, list[str]] = {}
        """The successive texts of each message."""
        self.keys: dict[str, str] = {}
        self.typed: list[str] = []
        self.results: list[DeliveryResult] = []
        """The results of the next sends; one with an unknown result arrives."""
        self.files: dict[str, bytes] = {}
        self.news = asyncio.Condition()

    async def say(self, text: str, **more: object) -> str:
        """Post a message of a person; return its id."""
        message = str(more.pop("message", f"m{self.posted.qsize()}-{len(self.acknowledged)}-{text[:20]}"))
        payload = {"chat": "c1", "message": message, "person": "alice", "text": text, **more}
        await self.posted.put(json.dumps(payload))
        return message

    @property
    def texts(self) -> list[str]:
        return [self.shown[self.keys[one.key]][-1] if one.key in self.keys else one.text for one in self.arrived]

    async def until(self, holds: Callable[[], bool]) -> None:
        """Wait until the condition holds."""
        async with asyncio.timeout(20), self.news:
            await self.news.wait_for(holds)

    async def changed(self) -> None:
        async with self.news:
            self.news.notify_all()


class FakeConnection:
    def __init__(self, channel: FakeChannel) -> None:
        self._channel = channel
        self.limits = channel.limits

    async def receive(self, intake: InboundPort, position: str) -> None:
        await intake.report_connected()
        while True:
            payload = await self._channel.posted.get()
            await intake.take([payload], position=str(len(self._channel.acknowledged) + 1))
            self._channel.acknowledged.append(payload)
            await self._channel.changed()

    def read(self, payload: str) -> Incoming:
        given = json.loads(payload)
        files = tuple(Attachment(**one) for one in given.pop("attachments", ()))
        return Incoming(**given, attachments=files)

    async def send(self, message: Outgoing) -> DeliveryResult:
        result = self._channel.results.pop(0) if self._channel.results else None
        if isinstance(result, RetryLater | Rejected):
            return result
        if self.limits.keyed and message.key in self._channel.keys:
            return Sent(self._channel.keys[message.key])
        remote = f"r{len(self._channel.arrived) + 1}"
        self._channel.arrived.append(message)
        self._channel.keys[message.key] = remote
        self._channel.shown[remote] = [message.text]
        await self._channel.changed()
        return result if isinstance(result, DeliveryUnknown) else Sent(remote)

    async def edit(self, chat: str, remote: str, text: str) -> DeliveryResult:
        self._channel.shown[remote].append(text)
        await self._channel.changed()
        return Sent(remote)

    async def typing(self, chat: str) -> None:
        self._channel.typed.append(chat)

    async def fetch(self, attachment: Attachment, target: Path, max_bytes: int) -> None:
        content = self._channel.files[attachment.ref]
        if len(content) > max_bytes:
            raise TooLarge("too large")
        target.write_bytes(content)


def connecting(channel: FakeChannel) -> Callable[[PlatformOptions, Clock], object]:
    @asynccontextmanager
    async def connect(options: PlatformOptions, clock: Clock) -> AsyncIterator[Platform]:
        yield FakeConnection(channel)

    return connect


def texts(messages: Sequence[Outgoing]) -> list[str]:
    return [message.text for message in messages]
