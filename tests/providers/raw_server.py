"""A server that answers each request with exactly the bytes that a test gives, over TCP or TLS."""

import asyncio
import ssl
from collections import deque
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

Answer = bytes | Callable[[asyncio.StreamReader, asyncio.StreamWriter], Awaitable[None]]


class RawServer:
    def __init__(self) -> None:
        self.answers: deque[Answer] = deque()
        self.heads: list[str] = []
        self.bodies: list[bytes] = []
        self.connections = 0
        self.host = ""

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        try:
            while True:
                head = (await reader.readuntil(b"\r\n\r\n")).decode("latin-1")
                self.heads.append(head)
                lines = dict(line.lower().split(": ", 1) for line in head.split("\r\n")[1:] if line)
                self.bodies.append(await reader.readexactly(int(lines.get("content-length", 0))))
                answer = self.answers.popleft()
                if callable(answer):
                    await answer(reader, writer)
                else:
                    writer.write(answer)
                    await writer.drain()
        except (asyncio.IncompleteReadError, ConnectionError):
            return  # the client disconnected
        finally:
            writer.close()


@asynccontextmanager
async def raw_server(context: ssl.SSLContext | None = None, address: str = "127.0.0.1") -> AsyncIterator[RawServer]:
    raw = RawServer()
    tasks: set[asyncio.Task[None]] = set()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.current_task()
        assert task is not None
        tasks.add(task)
        await raw.serve(reader, writer)

    server = await asyncio.start_server(accept, address, 0, ssl=context, limit=2**26)
    name = f"[{address}]" if ":" in address else address
    raw.host = f"{name}:{server.sockets[0].getsockname()[1]}"
    try:
        yield raw
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def respond(body: bytes, *headers: str, status: int = 200, type: str = "text/event-stream") -> bytes:
    """A complete response whose connection stays open."""
    lines = [f"HTTP/1.1 {status} X", f"content-type: {type}", f"content-length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def chunked(*chunks: bytes, trailer: str = "") -> bytes:
    head = b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\ntransfer-encoding: chunked\r\n\r\n"
    body = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks)
    return head + body + b"0\r\n" + trailer.encode() + b"\r\n"
