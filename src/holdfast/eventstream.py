"""Streams of server-sent events: they say that they are alive, end with whoever reads them, and never hold up what they tell of."""

import asyncio
from collections.abc import AsyncGenerator, Awaitable
from contextlib import suppress
from typing import Any, TypeVar

from starlette.responses import Response
from starlette.types import Receive, Scope, Send

T = TypeVar("T")
HEARTBEAT_SECONDS = 10.0
"""How long a stream may be silent; the contract says 15."""
HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no"}


async def with_heartbeats(
    items: AsyncGenerator[T, None], seconds: float, *, until: asyncio.Event | None = None
) -> AsyncGenerator[T | None, None]:
    """The same items, and None whenever none has come for so long, `until` it is time to leave. Closing it closes them."""
    waiting: asyncio.Future[T] | None = None
    bell = asyncio.ensure_future((until or asyncio.Event()).wait())
    try:
        while True:
            waiting = waiting or asyncio.ensure_future(_next(items))
            either: set[asyncio.Future[Any]] = {waiting, bell}
            await asyncio.wait(either, timeout=seconds, return_when=asyncio.FIRST_COMPLETED)
            if not waiting.done():
                if bell.done():
                    return
                yield None
                continue
            done, waiting = waiting, None
            try:
                item = done.result()
            except StopAsyncIteration:
                return
            yield item
    finally:
        bell.cancel()
        if waiting is not None:
            waiting.cancel()
            with suppress(asyncio.CancelledError, StopAsyncIteration):
                await waiting
        await items.aclose()


def _next(items: AsyncGenerator[T, None]) -> Awaitable[T]:
    async def one() -> T:
        return await anext(items)

    return one()


class EventStream(Response):
    """Sends pieces as they come, until they end or the client leaves. A slow client slows down nothing but its own stream."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], headers: dict[str, str]) -> None:
        self.status_code = 200
        self.background = None
        self._pieces = pieces
        self.init_headers(headers | HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        sending = asyncio.ensure_future(self._send(send))
        leaving = asyncio.ensure_future(_left(receive))
        try:
            await asyncio.wait({sending, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                sending.result()
        finally:
            for task in (sending, leaving):
                task.cancel()
            await asyncio.wait({sending, leaving})
            await self._pieces.aclose()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _left(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
