"""HTTP to a worker, over its socket: one connection for each request, passed on piece by piece in both directions."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterable
from contextlib import asynccontextmanager
from pathlib import Path

import httptools

PIECE = 64 * 1024
"""What is read at once; between two pieces everybody else has their turn."""
MAX_HEAD = 256 * 1024
"""Bytes of an answer before its body, or after it. A user can make their worker say anything, and must not fill the broker with it."""
MAX_ASKED = 256 * 1024
"""Bytes of an answer to a question of the broker's own."""
Headers = list[tuple[bytes, bytes]]


class Broken(Exception):
    """The connection ended before the answer did. `sent` says whether the worker may have heard the request."""

    def __init__(self, reason: str, *, sent: bool) -> None:
        super().__init__(reason)
        self.sent = sent


class Exchange:
    """A request to a worker and its answer. What `answer` yields comes as the worker sends it."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, method: str) -> None:
        self._reader = reader
        self._writer = writer
        self._has_body = method != "HEAD"
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._bare_bytes = 0
        """Since the last piece of the body."""
        self._has_head = False
        self._is_whole = False
        self.headers: Headers = []
        self.status = 0

    # what the parser calls

    def on_header(self, name: bytes, value: bytes) -> None:
        if not self._has_head:  # those after the body are nobody's
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

    # what the relay calls

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
            raise Broken(f"it does not listen any more: {e}", sent=True) from e

    async def head(self) -> None:
        """Wait until `status` and `headers` are known. Raises Broken."""
        while not self._has_head:
            await self._read()

    async def body(self) -> AsyncIterator[bytes]:
        """The body, piece by piece. Raises Broken if it ends before its end."""
        while True:
            pieces, self._pieces = self._pieces, []
            for piece in pieces:
                yield piece
            if self._is_whole:
                return
            await self._read()

    async def _read(self) -> None:
        try:
            data = await self._reader.read(PIECE)
        except OSError as e:
            raise Broken(f"the connection broke: {e}", sent=True) from e
        if not data:
            raise Broken("the connection was closed before the end", sent=True)
        self._bare_bytes += len(data)
        if self._bare_bytes > MAX_HEAD:
            raise Broken("its headers have no end", sent=True)
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as e:
            raise Broken(f"what came was no HTTP: {e}", sent=True) from e
        if self._pieces:
            self._bare_bytes = 0


@asynccontextmanager
async def connected(path: Path, method: str) -> AsyncIterator[Exchange]:
    """A connection to the socket. Raises Broken if nobody is there."""
    # A socket's path has a hundred bytes at most; seen through its folder, it is short wherever that lies.
    folder = os.open(path.parent, os.O_PATH | os.O_DIRECTORY)
    try:
        reader, writer = await asyncio.open_unix_connection(f"/proc/self/fd/{folder}/{path.name}", limit=PIECE)
    except OSError as e:
        raise Broken(f"nobody listens: {e}", sent=False) from e
    finally:
        os.close(folder)
    try:
        yield Exchange(reader, writer, method)
    finally:
        writer.close()


async def ask(path: Path, target: bytes, key: str) -> tuple[int, bytes]:
    """A short question of the broker's own to a worker: status and body. Raises Broken."""
    async with connected(path, "GET") as exchange:
        await exchange.send("GET", target, [(b"host", b"localhost"), (b"authorization", f"Bearer {key}".encode())])
        await exchange.head()
        body = b""
        async for piece in exchange.body():
            body += piece
            if len(body) > MAX_ASKED:
                raise Broken("its answer has no end", sent=True)
        return exchange.status, body
