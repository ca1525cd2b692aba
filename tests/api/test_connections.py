"""Clients that are slow, idle or too many: their connections are closed, and all others are served."""

import asyncio
import json
import socket
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import pytest
from starlette.types import Receive, Scope, Send

from holdfast.http_connection import ConnectionLimits
from holdfast.http_server import HttpServer as Listener
from holdfast.http_server import listen
from holdfast.tasks import running
from tests.api.serving import Server
from tests.crash.programs import Process, wait_until

QUICK = ConnectionLimits(head_seconds=0.2, body_seconds=0.2, idle_seconds=1)
LENIENT_LIMITS = ConnectionLimits(head_seconds=60, body_seconds=60, idle_seconds=60)
BODY = b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: 10\r\n\r\n"


async def echo(scope: Scope, receive: Receive, send: Send) -> None:
    """Respond with the complete body of the request, or not at all if the client disconnects."""
    body = b""
    while True:
        message = await receive()
        if message["type"] == "http.disconnect":
            return
        body += message["body"]
        if not message["more_body"]:
            break
    await send({"type": "http.response.start", "status": 200, "headers": [(b"content-length", b"%d" % len(body))]})
    await send({"type": "http.response.body", "body": body})


@asynccontextmanager
async def serving(limits: ConnectionLimits) -> AsyncIterator[int]:
    started = asyncio.Event()
    listener = listen("127.0.0.1", 0)
    server = Listener(echo, started.set, limits)
    async with running(server.serve([listener])) as (task,):
        await started.wait()
        try:
            yield listener.getsockname()[1]
        finally:
            server.stop()
            await asyncio.wait({task})
            listener.close()


async def told(port: int, *pieces: bytes) -> bytes:
    """Everything that the server sends in response to these bytes until it closes the connection."""
    reader, writer = await asyncio.open_connection("127.0.0.1", port)
    try:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()
        return await asyncio.wait_for(reader.read(), 30)
    finally:
        writer.close()


async def test_incomplete_headers_are_answered_with_408() -> None:
    async with serving(QUICK) as port:
        said = await told(port, b"GET / HTTP/1.1\r\nhost: he")

    assert said.startswith(b"HTTP/1.1 408 Request Timeout")
    assert b"request_timeout" in said


async def test_a_silent_connection_is_closed() -> None:
    async with serving(QUICK) as port:
        assert b" 408 " in await told(port)


async def test_a_body_that_stalls_is_answered_with_408() -> None:
    async with serving(QUICK) as port:
        said = await told(port, BODY, b"half")

    assert said.startswith(b"HTTP/1.1 408 Request Timeout")


async def test_a_connection_that_stays_idle_between_requests_is_closed() -> None:
    async with serving(QUICK) as port:
        said = await told(port, BODY, b"0123456789")

    assert said.startswith(b"HTTP/1.1 200 OK")
    assert said.endswith(b"0123456789")


async def test_empty_lines_do_not_keep_an_idle_connection_open() -> None:
    async with serving(QUICK) as port:
        said = await told(port, BODY, b"0123456789", b"\r\n")

    assert said.startswith(b"HTTP/1.1 200 OK")


async def test_a_slow_client_that_keeps_sending_is_served() -> None:
    async with serving(QUICK) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(BODY)
        for piece in b"0123456789":
            writer.write(bytes([piece]))
            await writer.drain()
            await asyncio.sleep(QUICK.body_seconds / 5)
        said = await asyncio.wait_for(reader.readuntil(b"0123456789"), 30)
        writer.close()

    assert said.startswith(b"HTTP/1.1 200 OK")


@pytest.mark.parametrize("length", [b"content-length: 1000", b"transfer-encoding: chunked"])
async def test_a_body_that_drips_is_answered_with_408_when_its_whole_time_is_over(length: bytes) -> None:
    """Each piece comes long before the limit between two pieces."""
    limits = ConnectionLimits(60, 60, 60, whole_body_seconds=0.2, slowest_rate=10_000)
    async with serving(limits) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nhost: here\r\n" + length + b"\r\n\r\n")
        # Only the first line: the server may reset the connection, because more comes after it has closed it.
        said = asyncio.ensure_future(reader.readuntil(b"\r\n"))
        while not said.done():
            writer.write(b"x" if length.startswith(b"content") else b"1\r\nx\r\n")
            await asyncio.wait({said}, timeout=0.02)
        writer.close()

    assert (await said).startswith(b"HTTP/1.1 408 Request Timeout")


async def test_a_large_body_has_more_time_than_a_small_one() -> None:
    limits = ConnectionLimits(60, 60, 60, whole_body_seconds=0, slowest_rate=1)
    size = 200
    async with serving(limits) as port:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(b"POST / HTTP/1.1\r\nhost: here\r\ncontent-length: %d\r\n\r\n" % size)
        for _ in range(size):
            writer.write(b"x")
            await writer.drain()
        said = await asyncio.wait_for(reader.readuntil(b"x" * size), 30)
        writer.close()

    assert said.startswith(b"HTTP/1.1 200 OK")


async def test_connections_are_refused_before_descriptors_run_out() -> None:
    with socket.socket() as probe:
        ceiling = probe.fileno() + 20
    limits = ConnectionLimits(60, 60, 60, descriptors=ceiling)
    async with serving(limits) as port:
        held = [await asyncio.open_connection("127.0.0.1", port) for _ in range(30)]
        refused = await told(port)
        for _, writer in held:
            writer.close()
            with suppress(ConnectionError):
                await writer.wait_closed()
        for _ in range(1000):
            said = await told(port, b"GET / HTTP/1.1\r\nhost: here\r\nconnection: close\r\n\r\n")
            if b" 503 " not in said:
                break

    assert refused.startswith(b"HTTP/1.1 503 Service Unavailable")
    assert said.startswith(b"HTTP/1.1 200 OK"), "and accepted again when there is room"


class Cramped(Server):
    """With 64 file descriptors, as `ulimit -n 64` leaves them."""

    before = ("prlimit", "--nofile=64:64")


def test_after_a_flood_of_incomplete_requests_a_killed_worker_is_still_cleaned_up(tmp_path: Path) -> None:
    with Cramped(tmp_path / "home") as server:
        flood = []
        for _ in range(100):
            one = socket.create_connection(("127.0.0.1", server.port), timeout=30)
            one.sendall(b"GET /ready HTTP/1.1\r\nhost: 127.0.0.1\r\nx-half: ")
            flood.append(one)
        wait_until(lambda: any(_is_refused(one) for one in flood), "connections to be refused")
        for one in flood:
            one.close()
        with server.http() as http:
            wait_until(lambda: http.get("/ready").status_code == 200, "the server to be ready")
        command = [sys.executable, "-m", "holdfast", "--home", str(server.home)]
        with Process(*command, "run", "--model", server.model("silent"), "hello") as run:
            wait_until(lambda: "run" in _workers(command, ended=False), "the turn to run")
            run.kill()
        wait_until(lambda: "run" in _workers(command, ended=True), "the killed worker to be buried")
        with server.http() as http:
            tasks = {task["name"]: task for task in http.get("/ready").json()["tasks"]}

    assert tasks["janitor"]["state"] == "running"
    assert tasks["janitor"]["cycle_at"] is not None


def _is_refused(one: socket.socket) -> bool:
    one.setblocking(False)
    try:
        return b" 503 " in one.recv(4096, socket.MSG_PEEK)
    except BlockingIOError:
        return False
    except ConnectionError:
        return True


def _workers(command: list[str], *, ended: bool) -> list[str]:
    with Process(*command, "workers", "--all", "--json") as listing:
        listing.wait()
        found = json.loads(listing.stdout)["workers"]
    return [one["kind"] for one in found if (one["ended_at"] is not None) == ended]
