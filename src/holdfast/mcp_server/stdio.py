"""The transport over standard input and output: one JSON-RPC message per line.

It is not the library's own: that one reads in a thread, which keeps the process from ending after a signal, has no limit for
a line, and leaves a malformed line without an answer.

While it serves, descriptor 0 is the null device and descriptor 1 is standard error, so that neither tools nor stray output
can reach the client's streams.
"""

import asyncio
import os
import stat
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from holdfast.model.errors import Invalid
from holdfast.tasks import run_all

Incoming = SessionMessage | Exception
CHUNK = 64 * 1024


async def serve(server: "Server[Any]", *, max_bytes: int) -> None:
    """Serve the client until it closes its end. Raises Invalid if standard input and output are not pipes or sockets."""
    with _own_descriptors() as (source, target):
        async with _open(source, target) as (reader, writer):
            to_server, from_client = anyio.create_memory_object_stream[Incoming](0)
            to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)
            output = _Output(writer)
            try:
                await run_all(
                    _read(_Lines(reader, max_bytes), to_server, output),
                    _write(from_server, output),
                    server.run(from_client, to_client, server.create_initialization_options()),
                )
            except ConnectionError:
                return  # the client was killed; its turns go on


@contextmanager
def _own_descriptors() -> Iterator[tuple[int, int]]:
    """Take descriptors 0 and 1 for the client, and put others in their places."""
    for descriptor, name in ((0, "input"), (1, "output")):
        mode = os.fstat(descriptor).st_mode
        if not (stat.S_ISFIFO(mode) or stat.S_ISSOCK(mode)):
            raise Invalid(f"standard {name} is not a pipe: an MCP client starts this command; see docs/mcp-server.md")
    source, target = os.dup(0), os.dup(1)
    nothing = os.open(os.devnull, os.O_RDONLY)
    try:
        os.dup2(nothing, 0)
        os.dup2(2, 1)
        yield source, target
    finally:
        os.close(nothing)
        os.dup2(source, 0)
        os.dup2(target, 1)
        os.close(source)
        os.close(target)


@asynccontextmanager
async def _open(source: int, target: int) -> AsyncIterator[tuple[asyncio.StreamReader, asyncio.StreamWriter]]:
    loop = asyncio.get_running_loop()
    reader = asyncio.StreamReader(limit=CHUNK)
    incoming, _ = await loop.connect_read_pipe(
        lambda: asyncio.StreamReaderProtocol(reader), os.fdopen(os.dup(source), "rb", buffering=0)
    )
    outgoing, protocol = await loop.connect_write_pipe(
        asyncio.streams.FlowControlMixin, os.fdopen(os.dup(target), "wb", buffering=0)
    )
    try:
        yield reader, asyncio.StreamWriter(outgoing, protocol, None, loop)
    finally:
        incoming.close()
        outgoing.close()


class _Lines:
    """Reads lines. Of a line that is too long, no more than the limit is kept."""

    def __init__(self, reader: asyncio.StreamReader, max_bytes: int) -> None:
        self._reader = reader
        self.max_bytes = max_bytes
        self._buffer = bytearray()

    async def next(self) -> bytes | None:
        """The next line without its end; None at the end of the input. A line that is too long is cut after the limit."""
        line = bytearray()
        while True:
            end = self._buffer.find(b"\n")
            piece = bytes(self._buffer if end < 0 else self._buffer[:end])
            line += piece[: self.max_bytes + 1 - len(line)]
            del self._buffer[: len(piece) + (end >= 0)]
            if end >= 0:
                return bytes(line)
            chunk = await self._reader.read(CHUNK)
            if not chunk:
                return bytes(line) if line else None
            self._buffer += chunk


class _Output:
    """Writes one message at a time. If the client does not read, only the writers wait."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._lock = asyncio.Lock()

    async def write(self, message: types.JSONRPCMessage) -> None:
        line = message.model_dump_json(by_alias=True, exclude_unset=True).encode("utf-8")
        async with self._lock:
            self._writer.write(line + b"\n")
            await self._writer.drain()

    async def refuse(self, code: int, name: str, message: str) -> None:
        """Answer a line that is no message. Nobody knows to which request it belongs."""
        data = types.ErrorData(code=code, message=message, data={"code": name})
        await self.write(types.JSONRPCError(jsonrpc="2.0", id=None, error=data))


async def _read(lines: _Lines, to_server: MemoryObjectSendStream[Incoming], output: _Output) -> None:
    async with to_server:
        while (line := await lines.next()) is not None:
            if len(line) > lines.max_bytes:
                limit = f"the message exceeds the limit of {lines.max_bytes:,} bytes"
                await output.refuse(types.INVALID_REQUEST, "request_too_large", limit)
            elif line.strip():
                await _pass_on(line, to_server, output)


async def _pass_on(line: bytes, to_server: MemoryObjectSendStream[Incoming], output: _Output) -> None:
    try:
        message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
    except ValidationError as e:
        problem = e.errors(include_input=False, include_url=False)[0]
        if problem["type"] == "json_invalid":
            await output.refuse(types.PARSE_ERROR, "invalid_json", f"the line is not JSON: {problem['msg']}")
        else:
            await output.refuse(types.INVALID_REQUEST, "invalid_request", "the line is not a JSON-RPC 2.0 message")
    else:
        await to_server.send(SessionMessage(message))


async def _write(from_server: MemoryObjectReceiveStream[SessionMessage], output: _Output) -> None:
    async with from_server:
        async for message in from_server:
            await output.write(message.message)
