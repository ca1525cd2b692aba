"""The transport over standard input and output: one JSON-RPC message per line.

It is not the library's own: that one reads in a thread, which keeps the process from ending after a signal, has no limit for
a line, and leaves a malformed line without an answer.
"""

import asyncio
from typing import Any

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.server.lowlevel import Server
from mcp.shared.message import SessionMessage
from pydantic import ValidationError

from holdfast.stdio_pipes import PipeLines, open_pipes, own_descriptors
from holdfast.tasks import run_all

Incoming = SessionMessage | Exception


async def serve(server: "Server[Any]", *, max_bytes: int) -> None:
    """Serve the client until it closes its end. Raises Invalid if standard input and output are not pipes or sockets."""
    with own_descriptors("an MCP client starts this command; see docs/mcp-server.md") as (source, target):
        async with open_pipes(source, target) as (reader, writer):
            to_server, from_client = anyio.create_memory_object_stream[Incoming](0)
            to_client, from_server = anyio.create_memory_object_stream[SessionMessage](0)
            output = _Output(writer)
            try:
                await run_all(
                    _read(PipeLines(reader, max_bytes), to_server, output),
                    _write(from_server, output),
                    server.run(from_client, to_client, server.create_initialization_options()),
                )
            except ConnectionError:
                return  # the client was killed; its turns go on


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


async def _read(lines: PipeLines, to_server: MemoryObjectSendStream[Incoming], output: _Output) -> None:
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
