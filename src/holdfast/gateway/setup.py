"""The first contact with a platform: check its settings, find out who writes, and send that person a message.

Nothing is stored. The message that the person wrote is not acknowledged to platforms that keep messages until then, so
the server answers it when it starts.
"""

import asyncio
import uuid
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager

from holdfast.gateway.port import Incoming, Outgoing, Platform, Rejected, Sent, describe_error
from holdfast.model.errors import Unavailable
from holdfast.tasks import running, wait_for_first

CONNECT_SECONDS = 30.0
"""How long a platform may take to report that it is connected; arbitrary, but longer than a slow login."""
TEST_TEXT = "Holdfast is set up. Start the server with `holdfast serve`, and write to me here."

IgnoredNote = Callable[[Incoming], None]


class FirstMessage:
    """An intake that waits for the first message of a person and stores nothing."""

    def __init__(self, platform: Platform, note_ignored: IgnoredNote) -> None:
        self._platform = platform
        self._note_ignored = note_ignored
        self.connected: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self.found: asyncio.Future[Incoming] = asyncio.get_running_loop().create_future()

    async def take(self, payloads: Sequence[str | bytes], position: str | None = None) -> None:
        for payload in payloads:
            message = self._read(payload)
            if message is not None and not self.found.done():
                self.found.set_result(message)
        if self.found.done():
            raise Unavailable("the message is left to the server")  # what is taken would be acknowledged

    def _read(self, payload: str | bytes) -> Incoming | None:
        """The message, if a person wrote it. What cannot be parsed is left to the server."""
        try:
            text = payload.decode("utf-8", "surrogateescape") if isinstance(payload, bytes) else payload
            message = self._platform.read(text)
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        if message.person and message.ignored:
            self._note_ignored(message)
        return message if message.person and not message.ignored else None

    async def report_connected(self) -> None:
        if not self.connected.done():
            self.connected.set_result(None)

    async def report_down(self, error: str) -> None:
        """The platform's own module retries."""


class FirstContact:
    """A platform that is connected: what is written from now on is found."""

    def __init__(self, intake: FirstMessage, receiving: asyncio.Task[None]) -> None:
        self._intake = intake
        self._receiving = receiving

    async def wait_for_person(self, seconds: float) -> Incoming | None:
        """The first message that a person writes; None if nobody does within this time. Raises Unavailable."""
        await wait_for_first(self._receiving, self._intake.found, seconds=seconds)
        if self._intake.found.done():
            return self._intake.found.result()
        _raise_if_ended(self._receiving)
        return None


@asynccontextmanager
async def connected(platform: Platform, note_ignored: IgnoredNote = lambda _: None) -> AsyncIterator[FirstContact]:
    """Receive what is written. Raises Unavailable if the platform does not accept the connection.

    `note_ignored` is called with each message that the server would ignore.
    """
    intake = FirstMessage(platform, note_ignored)
    async with running(platform.receive(intake, "")) as (receiving,):
        await wait_for_first(receiving, intake.connected, intake.found, seconds=CONNECT_SECONDS)
        if not intake.found.done():
            _raise_if_ended(receiving)
            if not intake.connected.done():
                raise Unavailable(f"the platform did not accept the connection within {CONNECT_SECONDS:.0f} s")
        yield FirstContact(intake, receiving)


def _raise_if_ended(receiving: asyncio.Task[None]) -> None:
    if receiving.done():
        receiving.result()
        raise Unavailable("the platform closed the connection")


async def send_test_message(platform: Platform, to: Incoming) -> str:
    """Send a test message to the chat; returns why it was not accepted, or an empty text."""
    message = Outgoing(
        chat=to.chat, text=TEST_TEXT, key=f"setup-{uuid.uuid4().hex}", reply_to=to.reply_to or to.message
    )
    try:
        result = await platform.send(message)
    except Unavailable as e:
        return describe_error(e)
    match result:
        case Sent():
            return ""
        case Rejected():
            return result.reason
        case _:
            return f"{result.reason}; it may arrive later"
