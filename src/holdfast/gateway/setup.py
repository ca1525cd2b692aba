"""The first contact with a platform: check its settings, find out who writes, and send that person a message.

Nothing is stored. The message that the person wrote is not acknowledged to platforms that keep messages until then, so
the server answers it when it starts.
"""

import asyncio
import uuid
from collections.abc import Sequence

from holdfast.gateway.port import Incoming, Outgoing, Platform, Rejected, Sent, describe_error
from holdfast.model.errors import Unavailable
from holdfast.tasks import running, wait_for_first

TEST_TEXT = "Holdfast is set up. Start the server with `holdfast serve`, and write to me here."


class FirstMessage:
    """An intake that waits for the first message of a person and stores nothing."""

    def __init__(self, platform: Platform) -> None:
        self._platform = platform
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
        return message if message.person and not message.ignored else None

    async def report_connected(self) -> None:
        """The connection is shown by the first message."""

    async def report_down(self, error: str) -> None:
        """The platform's own module retries."""


async def wait_for_person(platform: Platform, seconds: float) -> Incoming | None:
    """The first message that a person writes; None if nobody does within this time. Raises Unavailable."""
    intake = FirstMessage(platform)
    async with running(platform.receive(intake, "")) as (receiving,):
        try:
            async with asyncio.timeout(seconds):
                await wait_for_first(receiving, intake.found)
        except TimeoutError:
            return None
    if intake.found.done():
        return intake.found.result()
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
