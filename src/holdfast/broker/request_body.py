"""The body of a request: forwarded as it arrives, and kept (on disk if large) if it may have to be sent again."""

import asyncio
import tempfile
from collections.abc import AsyncIterator

from starlette.types import Receive

MAX_IN_MEMORY = 256 * 1024
CHUNK_BYTES = 64 * 1024


class ClientDisconnected(Exception):
    """The client disconnected."""


class RequestBody:
    """`keep` is for requests that may be repeated."""

    def __init__(self, receive: Receive, *, keep: bool) -> None:
        self._receive = receive
        self._kept = tempfile.SpooledTemporaryFile(max_size=MAX_IN_MEMORY) if keep else None  # noqa: SIM115 - `close` does
        self._is_whole = asyncio.Event()

    async def pieces(self) -> AsyncIterator[bytes]:
        """Yield the kept chunks, then new ones. Raises ClientDisconnected."""
        at = 0
        while self._kept is not None:
            self._kept.seek(at)
            if not (piece := self._kept.read(CHUNK_BYTES)):
                break
            at += len(piece)
            yield piece
        while not self._is_whole.is_set():
            message = await self._receive()
            if message["type"] == "http.disconnect":
                raise ClientDisconnected
            piece = message.get("body", b"")
            if self._kept is not None:
                self._kept.seek(0, 2)
                self._kept.write(piece)
            if not message.get("more_body", False):
                self._is_whole.set()
            if piece:
                yield piece

    async def wait_disconnected(self) -> None:
        """Wait until the client disconnects."""
        await self._is_whole.wait()
        while (await self._receive())["type"] != "http.disconnect":
            pass

    def close(self) -> None:
        if self._kept is not None:
            self._kept.close()
