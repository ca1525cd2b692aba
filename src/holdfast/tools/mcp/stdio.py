"""An MCP server as a child process: one JSON message per line, with a limit for the length of a line.

The MCP library has the same transport without a limit. A longer line ends the connection with an error. Lines that are no
messages are counted and skipped, because some servers print other text there.
"""

import asyncio
import contextlib
import logging
import os
import signal
from collections.abc import AsyncIterator, Callable
from typing import TextIO

import anyio
import mcp_types as types
from anyio.streams.memory import MemoryObjectReceiveStream, MemoryObjectSendStream
from mcp.client.stdio import get_default_environment
from mcp.shared.message import SessionMessage

from holdfast.tools.mcp.server import MAX_MESSAGE_BYTES, McpServer

log = logging.getLogger(__name__)

EXIT_SECONDS = 2.0
"""How long the server may take to exit once its input is closed, and again once it is told to terminate."""
MAX_READ = 1_000_000
Incoming = SessionMessage | Exception
Streams = tuple[MemoryObjectReceiveStream[Incoming], MemoryObjectSendStream[SessionMessage]]


@contextlib.asynccontextmanager
async def stdio_transport(server: McpServer, errors: TextIO, report: Callable[[str], None]) -> AsyncIterator[Streams]:
    """Start the server and exchange messages with it; `report` why the connection ends early.

    Raises OSError if the server cannot be started.
    """
    process = await asyncio.create_subprocess_exec(
        *server.command,
        stdin=asyncio.subprocess.PIPE,
        stdout=asyncio.subprocess.PIPE,
        stderr=errors,
        env=get_default_environment() | server.env,
        limit=MAX_MESSAGE_BYTES,
        start_new_session=True,
    )
    to_client, from_server = anyio.create_memory_object_stream[Incoming](0)
    to_server, from_client = anyio.create_memory_object_stream[SessionMessage](0)
    try:
        async with anyio.create_task_group() as group, to_client, from_server, to_server, from_client:
            group.start_soon(_read, process, to_client, server.name, report)
            group.start_soon(_write, process, from_client, to_client)
            yield from_server, to_server
            group.cancel_scope.cancel()
    finally:
        with anyio.CancelScope(shield=True):
            await _stop(process)


async def _read(
    process: asyncio.subprocess.Process,
    messages: MemoryObjectSendStream[Incoming],
    name: str,
    report: Callable[[str], None],
) -> None:
    """Pass messages on until the server closes its output, or sends a line that is too long."""
    assert process.stdout is not None, "it was opened as a pipe"
    skipped = 0
    async with messages:
        while True:
            try:
                line = await process.stdout.readuntil(b"\n")
            except asyncio.IncompleteReadError:
                break
            except asyncio.LimitOverrunError:
                report(f"it sent a message longer than {MAX_MESSAGE_BYTES:,} bytes")
                break
            try:
                message = types.jsonrpc_message_adapter.validate_json(line, by_name=False)
            except ValueError:
                skipped += 1
                if skipped == 1:
                    log.info("MCP server %s prints lines that are no messages; they are skipped", name)
                continue
            try:
                await messages.send(SessionMessage(message))
            except (anyio.BrokenResourceError, anyio.ClosedResourceError):
                break  # nobody reads any more


async def _write(
    process: asyncio.subprocess.Process,
    messages: MemoryObjectReceiveStream[SessionMessage],
    to_client: MemoryObjectSendStream[Incoming],
) -> None:
    assert process.stdin is not None, "it was opened as a pipe"
    try:
        async for one in messages:
            text = one.message.model_dump_json(by_alias=True, exclude_unset=True)
            process.stdin.write(text.encode("utf-8", "replace") + b"\n")
            await process.stdin.drain()
    except (ConnectionError, RuntimeError):
        await to_client.aclose()  # the client sees the end of the connection instead of waiting


async def _stop(process: asyncio.subprocess.Process) -> None:
    """End the process and its children: close its input, terminate it, kill it."""
    assert process.stdin is not None, "it was opened as a pipe"
    process.stdin.close()
    for number in (None, signal.SIGTERM, signal.SIGKILL):
        if number is not None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, number)
        try:
            async with asyncio.timeout(EXIT_SECONDS):
                await asyncio.gather(process.wait(), _drain(process))
        except TimeoutError:
            continue
        return


async def _drain(process: asyncio.subprocess.Process) -> None:
    """Discard the rest of the output, on which the server would otherwise wait."""
    assert process.stdout is not None, "it was opened as a pipe"
    while await process.stdout.read(MAX_READ):
        pass
