"""The client of a provider's SDK, made at the first request and closed at the end."""

import asyncio
from collections.abc import Callable
from typing import Generic, Protocol, TypeVar

from holdfast.providers.server import Server


class Closable(Protocol):
    async def close(self) -> None:
        """Let go of its connections."""


C = TypeVar("C", bound=Closable)


class LateClient(Generic[C]):
    """Made once, on a thread: importing an SDK takes most of a second, during which the event loop has other things to do."""

    def __init__(self, make: Callable[[Server], C]) -> None:
        self._make = make
        self._client: C | None = None
        self._starting = asyncio.Lock()

    async def get(self, server: Server) -> C:
        async with self._starting:
            if self._client is None:
                self._client = await asyncio.to_thread(self._make, server)
            return self._client

    async def close(self) -> None:
        """It is made anew should somebody ask again."""
        client, self._client = self._client, None
        if client is not None:
            await client.close()
