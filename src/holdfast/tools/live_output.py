"""Shows the end of a command's output while the command runs. Nothing of it is stored: the result of the call has all of it."""

import asyncio

from holdfast.model.terminal_text import plain_text
from holdfast.model.tool import CallHost
from holdfast.tools.output_capture import OutputCapture

NEWEST_BYTES = 4_000
INTERVAL_SECONDS = 0.1
"""A command that prints much is shown at most that often."""


class LiveOutput:
    def __init__(self, capture: OutputCapture, host: CallHost | None) -> None:
        self._capture = capture
        self._host = host
        self._grown = asyncio.Event()

    def note(self) -> None:
        """Note that there is more output."""
        self._grown.set()

    async def show(self) -> None:
        """Show the newest output whenever there is more, until cancelled."""
        while self._host is not None:
            await self._grown.wait()
            self._grown.clear()
            self._host.show_output(plain_text(self._capture.newest(NEWEST_BYTES)))
            await asyncio.sleep(INTERVAL_SECONDS)
