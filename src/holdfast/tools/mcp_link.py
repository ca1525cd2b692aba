"""One connection to an MCP server, kept alive while idle and made again when it is found dead.

A task of its own holds the connection, because the protocol's library ends the task that opened it when
the transport breaks. The task asks the idle server for a sign of life now and then, so that nothing in
between forgets the connection, and lets go of a server that gives none. The next call dials again.

A call that may be repeated is simply sent, and sent once more over a new connection if the first broke.
Any other call is sent at most once: the server is asked for a sign of life first, a dead connection is
replaced while nothing has been sent, and what breaks after that is raised as "nobody knows".
"""

import asyncio
from collections.abc import Callable
from contextlib import AbstractAsyncContextManager
from typing import TYPE_CHECKING

from holdfast.model.errors import Unavailable

if TYPE_CHECKING:
    from mcp import Client
    from mcp_types import CallToolResult

SIGN_SECONDS = 10.0
"""How long a server may take to show that it lives."""
CLOSE_SECONDS = 15.0
"""More than the library takes to end a child that does not want to."""

Dial = Callable[[], "AbstractAsyncContextManager[Client]"]


class Link:
    def __init__(self, dial: Dial, *, ping_seconds: float, connect_seconds: float, call_seconds: float) -> None:
        self._dial = dial
        self._ping_seconds = ping_seconds
        self._connect_seconds = connect_seconds
        self._call_seconds = call_seconds
        self._dialling = asyncio.Lock()
        self._hangup = asyncio.Event()
        self._holder: asyncio.Task[None] | None = None
        self._client: Client | None = None
        self._calls = 0

    async def open(self, *, instead_of: "Client | None" = None) -> "Client":
        """The connection, made now if there is none or only the one given. Raises Unavailable."""
        async with self._dialling:
            is_held = self._holder is not None and not self._holder.done()
            if self._client is not None and is_held and self._client is not instead_of:
                return self._client
            await self.close()
            self._client = await self._connect()
            return self._client

    async def call(self, tool: str, arguments: dict[str, object], *, may_repeat: bool) -> "CallToolResult":
        """Call a tool of the server.

        Raises Unavailable if nothing was sent, ConnectionError or TimeoutError if the server may or may
        not have acted, and MCPError for the server's own refusal.
        """
        client = await self.open()
        if not may_repeat and not await self._shows_life(client):
            client = await self.open(instead_of=client)
        try:
            return await self._send(client, tool, arguments)
        except ConnectionError:
            if not may_repeat:
                raise
        return await self._send(await self.open(instead_of=client), tool, arguments)

    async def close(self) -> None:
        """End the connection and, for a child process, the process. May be called twice."""
        holder, self._holder, self._client = self._holder, None, None
        if holder is None:
            return
        self._hangup.set()
        await asyncio.wait({holder}, timeout=CLOSE_SECONDS)
        await _ended(holder)

    async def _connect(self) -> "Client":
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._hangup = asyncio.Event()
        self._holder = holder = asyncio.create_task(self._hold(ready, self._hangup))
        either: set[asyncio.Task[None] | asyncio.Future[Client]] = {holder, ready}
        try:
            await asyncio.wait(either, timeout=self._connect_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not ready.done():
                holder.cancel()
        if ready.done():
            return ready.result()
        is_late = not holder.done()
        failure = await _ended(holder)
        raise Unavailable(f"no answer within {self._connect_seconds:g} s" if is_late else reason(failure))

    async def _hold(self, ready: "asyncio.Future[Client]", hangup: asyncio.Event) -> None:
        async with self._dial() as client:
            ready.set_result(client)
            while not await _happens(hangup, within=self._ping_seconds):
                # A server that is busy with a call may have no time to answer.
                if not self._calls and not await self._shows_life(client):
                    return

    async def _shows_life(self, client: "Client") -> bool:
        from mcp import MCPError
        from mcp_types import METHOD_NOT_FOUND

        session = client.session
        try:
            async with asyncio.timeout(SIGN_SECONDS):
                if session.initialize_result is not None:
                    await session.send_ping()
                else:
                    # The protocol of 2026 has no ping any more.
                    await session.send_discover(client.protocol_version)
        except TimeoutError:
            return self._calls > 0
        except MCPError as e:
            return e.code == METHOD_NOT_FOUND
        return True

    async def _send(self, client: "Client", tool: str, arguments: dict[str, object]) -> "CallToolResult":
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        self._calls += 1
        try:
            return await client.call_tool(tool, arguments, read_timeout_seconds=self._call_seconds)
        except MCPError as e:
            if e.code == CONNECTION_CLOSED:
                raise ConnectionError(str(e)) from e
            if e.code == REQUEST_TIMEOUT:
                raise TimeoutError(f"no answer within {self._call_seconds:g} s") from e
            raise
        finally:
            self._calls -= 1


def reason(error: BaseException | None) -> str:
    """What lies at the bottom of a failure, in one line."""
    if isinstance(error, BaseExceptionGroup):
        return reason(error.exceptions[0])
    return f"{type(error).__name__}: {error}" if error is not None else "the connection was closed"


async def _happens(event: asyncio.Event, *, within: float) -> bool:
    try:
        async with asyncio.timeout(within):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def _ended(holder: asyncio.Task[None]) -> BaseException | None:
    """See the task to its end; why it ended, if it failed."""
    holder.cancel()
    await asyncio.wait({holder})
    return None if holder.cancelled() else holder.exception()
