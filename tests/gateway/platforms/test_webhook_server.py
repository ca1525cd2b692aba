"""The webhook server has the limits of the API server: slow, idle, oversized and too many connections are refused."""

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from holdfast.gateway.platforms import webhook_server
from holdfast.http_connection import MAX_HEADER_BYTES, ConnectionLimits
from holdfast.model.errors import Unavailable
from holdfast.tasks import stop
from tests.gateway.synapse import free_port

QUICK = ConnectionLimits(head_seconds=0.2, body_seconds=0.2, idle_seconds=1)
LENIENT_LIMITS = ConnectionLimits(60, 60, 60)
HEAD = b"POST / HTTP/1.1\r\nhost: here\r\n"


async def echo(headers: webhook_server.Headers, body: bytes) -> webhook_server.WebhookResponse:
    return 200, body


@asynccontextmanager
async def serving(limits: ConnectionLimits | None = None) -> AsyncIterator[int]:
    port = free_port()
    task = asyncio.ensure_future(webhook_server.serve(("127.0.0.1", port), echo, limits))
    async with asyncio.timeout(30):
        while not await _answers(port):
            assert not task.done()
            await asyncio.sleep(0.01)
    try:
        yield port
    finally:
        await stop(task)


async def _answers(port: int) -> bool:
    try:
        return b" 200 " in await exchange(port, HEAD + b"content-length: 0\r\nconnection: close\r\n\r\n")
    except ConnectionError:
        return False


async def exchange(port: int, *pieces: bytes) -> bytes:
    """Everything that the server sends until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.close()


async def test_missing_headers_and_bodies_get_408() -> None:
    async with serving(QUICK) as port:
        said = [
            await exchange(port),
            await exchange(port, HEAD),
            await exchange(port, HEAD + b"content-length: 10\r\n\r\n", b"half"),
        ]

    assert [one.split(b" ")[1] for one in said] == [b"408", b"408", b"408"]


async def test_headers_over_the_limit_get_431() -> None:
    async with serving(LENIENT_LIMITS) as port:
        said = await exchange(port, HEAD + b"x-long: " + b"x" * MAX_HEADER_BYTES)

    assert said.startswith(b"HTTP/1.1 431 ")


async def test_a_connection_that_stays_idle_after_a_request_is_closed() -> None:
    async with serving(QUICK) as port:
        said = await exchange(port, HEAD + b"content-length: 4\r\n\r\n", b"ping")

    assert said.startswith(b"HTTP/1.1 200 OK") and said.endswith(b"ping")


async def test_a_body_over_the_limit_is_rejected_and_the_rest_is_not_read() -> None:
    async with serving(LENIENT_LIMITS) as port:
        sent = b"x" * (webhook_server.MAX_BODY + 1)
        said = await exchange(port, HEAD + f"content-length: {10 * len(sent)}\r\n\r\n".encode(), sent)

    assert said.startswith(b"HTTP/1.1 413 ")


async def test_connections_are_refused_before_descriptors_run_out() -> None:
    with socket.socket() as probe:
        ceiling = probe.fileno() + 20
    async with serving(ConnectionLimits(60, 60, 60, descriptors=ceiling)) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
        refused = await exchange(port)
        for _, writer in held:
            writer.close()

    assert refused.startswith(b"HTTP/1.1 503 ")


async def test_an_address_in_use_is_unavailable() -> None:
    async with serving() as port:
        with pytest.raises(Unavailable, match=r"cannot listen on .* choose another port"):
            await webhook_server.serve(("127.0.0.1", port), echo)
