"""Server-sent events: formatting, heartbeats, and a response that ends when the client disconnects."""

import asyncio
from collections.abc import AsyncGenerator
from typing import TypeVar

import msgspec
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from holdfast.model.surrogates import repair_json
from holdfast.tasks import Tasks, running, wait_for_first

T = TypeVar("T")
HEARTBEAT_SECONDS = 10.0
"""How long a stream may be silent; clients are promised 15 seconds."""
HEADERS = {"content-type": "text/event-stream; charset=utf-8", "cache-control": "no-cache", "x-accel-buffering": "no"}
HEARTBEAT = b": still here\n\n"
DONE = b"data: [DONE]\n\n"
RETRY = b"retry: 1000\n\n"
"""Reconnect delay for browsers in milliseconds."""


async def with_heartbeats(
    items: AsyncGenerator[T, None], seconds: float, *, until: asyncio.Event | None = None
) -> AsyncGenerator[T | None, None]:
    """Yield the items, and None after each silent period, until `until` is set. Closing it closes `items`."""
    tasks = Tasks(on_failure=None)
    waiting: asyncio.Task[T] | None = None
    leaving = tasks.start((until or asyncio.Event()).wait())
    try:
        while True:
            waiting = waiting or tasks.start(_next(items))
            await wait_for_first(waiting, leaving, seconds=seconds)
            if not waiting.done():
                if leaving.done():
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
        await tasks.close()
        await items.aclose()


async def _next(items: AsyncGenerator[T, None]) -> T:
    return await anext(items)


def encode_json(document: object) -> bytes:
    """Encode a document as UTF-8 JSON. Lone surrogates, which UTF-8 cannot encode, become U+FFFD."""
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError:
        return msgspec.json.encode(repair_json(msgspec.to_builtins(document)))


def format_event(data: object, *, name: str = "", id: str = "") -> bytes:
    """Format one event. Its data is one line of JSON; `bytes` are JSON already."""
    head = (f"id: {id}\n" if id else "") + (f"event: {name}\n" if name else "")
    return head.encode() + b"data: " + (data if isinstance(data, bytes) else encode_json(data)) + b"\n\n"


class EventStream(Response):
    """Streams chunks until they end or the client disconnects. A slow client slows down only its own stream."""

    def __init__(self, pieces: AsyncGenerator[bytes, None], headers: dict[str, str]) -> None:
        self.status_code = 200
        self.background = None
        self._pieces = pieces
        self.init_headers(headers | HEADERS)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            async with running(self._send(send), _disconnected(receive)) as (sending, leaving):
                await wait_for_first(sending, leaving)
                if sending.done():
                    sending.result()
        finally:
            await self._pieces.aclose()

    async def _send(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
        async for piece in self._pieces:
            await send({"type": "http.response.body", "body": piece, "more_body": True})
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
