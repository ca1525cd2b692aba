"""HTTP client for a worker's socket: one connection per request, streamed in both directions."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import httptools

CHUNK_BYTES = 64 * 1024
"""Bytes read at once; other requests run between two chunks."""
MAX_HEADER_BYTES = 256 * 1024
"""Bytes of a response outside its body. A user controls what their worker sends, and must not fill the broker's memory."""
MAX_REPLY_BYTES = 256 * 1024
"""Bytes of a response to the broker's own requests."""
Headers = list[tuple[bytes, bytes]]


class ConnectionBroken(Exception):
    """The connection ended before the response did. `sent`: the worker may have received the request."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class HttpExchange:
    """A request to a worker and its response. `body` yields chunks as the worker sends them."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str) -> None:
        self._reader = reader
        self._writer = writer
        self._has_body = method != "HEAD"
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._bare_bytes = 0
        """Bytes since the last chunk of the body."""
        self._has_head = False
        self._is_whole = False
        self.headers: Headers = []
        self.status = 0

    # parser callbacks

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # trailers are ignored
            self.headers.append((name.lower(), value))

    def on_headers_complete(self) -> None:
        self.status = self._parser.get_status_code()
        self._has_head = self.status >= 200
        self._is_whole = self._has_head and not self._has_body
        if not self._has_head:
            self.headers = []

    def on_body(self, body: bytes) -> None:
        self._pieces.append(body)

    def on_message_complete(self) -> None:
        self._is_whole = self._has_head

    # used by the proxy

    async def send(self, method: str, target: bytes, headers: Iterable[tuple[bytes, bytes]]) -> None:
        lines = [
            method.encode("ascii") + b" " + target + b" HTTP/1.1",
            *(name + b": " + value for name, value in headers),
        ]
        await self._write(b"\r\n".join([*lines, b"connection: close", b"", b""]))

    async def send_piece(self, piece: bytes, *, chunked: bool) -> None:
        await self._write(b"%x\r\n%b\r\n" % (len(piece), piece) if chunked else piece)

    async def send_end(self, *, chunked: bool) -> None:
        if chunked:
            await self._write(b"0\r\n\r\n")

    async def _write(self, data: bytes) -> None:
        try:
            self._writer.write(data)
            await self._writer.drain()
        except OSError as e:
            raise ConnectionBroken(f"the worker closed the connection: {e}", sent=True) from e

    async def head(self) -> None:
        """Wait for `status` and `headers`. Raises ConnectionBroken."""
        while not self._has_head:
            await self._read()

    async def body(self) -> AsyncIterator[bytes]:
        """Yield the body in chunks. Raises ConnectionBroken if it is incomplete."""
        while True:
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                yield piece
            if self._is_whole:
                return
            await self._read()

    async def _read(self) -> None:
        try:
            data = await self._reader.read(CHUNK_BYTES)
        except OSError as e:
            raise ConnectionBroken(f"the connection broke: {e}", sent=True) from e
        if not data:
            raise ConnectionBroken("the connection closed before the response was complete", sent=True)
        self._bare_bytes += len(data)
        if self._bare_bytes > MAX_HEADER_BYTES:
            raise ConnectionBroken("the headers are too large", sent=True)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as e:
            raise ConnectionBroken(f"invalid HTTP: {e}", sent=True) from e
        if self._pieces:
            self._bare_bytes = 0


@asynccontextmanager
async def connect(path: Path, method: str) -> AsyncIterator[HttpExchange]:
    """Connect to the socket. Raises ConnectionBroken if nothing listens."""
    # A socket path is limited to about a hundred bytes; through /proc/self/fd it is always short.
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{path.name}", limit=CHUNK_BYTES)
    except OSError as e:
        raise ConnectionBroken(f"nothing listens: {e}", sent=False) from e
    finally:
        os.close(folder)
    try:
        yield HttpExchange(reader, writer, method)
    finally:
        writer.close()


async def get(path: Path, target: bytes, key: str) -> tuple[int, bytes]:
    """Send a request of the broker itself; return status and body. Raises ConnectionBroken."""
    async with connect(path, "GET") as exchange:
        await exchange.send("GET", target, [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())])
        await exchange.head()
        body = b""
        async for piece in exchange.body():
            body += piece
            if len(body) > MAX_REPLY_BYTES:
                raise ConnectionBroken("the response is too large", sent=True)
        return exchange.status, body
