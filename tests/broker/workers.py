"""A fake worker with a real socket that behaves as the test says, and its tenant."""

import asyncio
import contextlib
import os
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

from starlette.types import Message

from holdfast.broker.proxy import Proxy
from holdfast.broker.rate_limit import RateLimit
from holdfast.model.errors import DiskFull

Part = Callable[[bytes, asyncio.StreamWriter], Awaitable[None]]
"""Handles one connection after the request has been read completely."""
OK = b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\n\r\nok"


class Scripted:
    """Runs one handler for each connection and records the requests. It is its own tenant and worker."""

    class user:  # noqa: N801 - as the tenant's
        name = "ada"

    class state:  # noqa: N801 - as the worker's
        key = "worker-key"

    def __init__(self, socket: Path, *parts: Part) -> None:
        self.socket = socket
        self.rate_limit = RateLimit(None, lambda: 0.0)
        self.heard: list[bytes] = []
        self.leaves = False
        self.full = ""
        self._parts = list(parts)

    async def get_worker(self, failed: object = None) -> "Scripted":
        """The disk quota applies after the first request."""
        if failed is not None and self.full:
            raise DiskFull(self.full)
        return self

    async def is_ready(self) -> bool:
        return not self.leaves

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.closing(writer):
            head = await reader.readuntil(b"\r\n\r\n")
            body = b""
            for line in head.lower().split(b"\r\n"):
                if line.startswith(b"content-length: "):
                    body = await reader.readexactly(int(line.partition(b": ")[2]))
                if line == b"transfer-encoding: chunked":
                    body = await reader.readuntil(b"0\r\n\r\n")
            self.heard.append(head + body)
            await self._parts.pop(0)(head + body, writer)


@asynccontextmanager
async def scripted(folder: Path, *parts: Part) -> AsyncIterator[Scripted]:
    worker = Scripted(folder / "sock", *parts)
    here = os.open(folder, os.O_PATH)  # the directory may be deeper than the longest socket path
    try:
        async with await asyncio.start_unix_server(worker.serve, f"/proc/self/fd/{here}/sock", limit=2**22):
            yield worker
    finally:
        os.close(here)


def says(*pieces: bytes) -> Part:
    """Sends these chunks and closes the connection."""

    async def play(request: bytes, writer: asyncio.StreamWriter) -> None:
        for piece in pieces:
            writer.write(piece)
            await writer.drain()

    return play


DIES = says()


class Client:
    """What a server does for an application: passes the request and records the response. It can disconnect."""

    def __init__(self, method: str, path: str, body: bytes | list[bytes] = b"", headers: dict[str, str] | None = None):
        pieces = body if isinstance(body, list) else [body]
        given = {"host": "holdfast.example", **(headers or {})}
        if not isinstance(body, list):
            given["content-length"] = str(len(body))
        self.scope: dict[str, Any] = {
            "type": "http",
            "method": method,
            "path": path,
            "raw_path": path.encode(),
            "query_string": b"",
            "headers": [(name.encode(), value.encode()) for name, value in given.items()],
        }
        self._messages = [
            {"type": "http.request", "body": piece, "more_body": number < len(pieces) - 1}
            for number, piece in enumerate(pieces)
        ]
        self.leaves = asyncio.Event()
        self.sent: list[Message] = []
        self.has_heard = asyncio.Event()

    async def receive(self) -> Message:
        if self._messages:
            return self._messages.pop(0)
        await self.leaves.wait()
        return {"type": "http.disconnect"}

    async def send(self, message: Message) -> None:
        self.sent.append(message)
        if message.get("body"):
            self.has_heard.set()

    @property
    def status(self) -> int:
        return int(self.sent[0]["status"])

    @property
    def headers(self) -> dict[str, str]:
        return {name.decode(): value.decode() for name, value in self.sent[0]["headers"]}

    @property
    def body(self) -> bytes:
        return b"".join(message.get("body", b"") for message in self.sent[1:])

    async def ask(self, worker: Scripted, cookie: bytes | None = None) -> "Client":
        await Proxy(worker, self.scope, self.receive, self.send, cookie).run()  # type: ignore[arg-type]
        return self


def header(request: bytes, name: bytes) -> bytes | None:
    """The value of a header as the worker received it."""
    lines = request.partition(b"\r\n\r\n")[0].split(b"\r\n")[1:]
    found = [value for key, _, value in (line.partition(b": ") for line in lines) if key.lower() == name]
    assert len(found) < 2, f"{name!r} came {len(found)} times"
    return found[0] if found else None
