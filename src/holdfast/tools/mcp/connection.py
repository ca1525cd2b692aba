"""One connection to an MCP server, kept alive while idle and reopened when it is dead.

A separate task keeps the connection open, because the MCP library cancels the task that opened it when the
transport breaks. The task pings the idle server regularly, so that no proxy drops the connection, and closes
the connection if there is no response. The next call reconnects.

A request that may be repeated is sent, and sent once more over a new connection if the first one broke.
Any other request is sent at most once: the server is pinged first, a dead connection is replaced while nothing
has been sent, and a failure after that is raised as an unknown outcome.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import AbstractAsyncContextManager
from contextvars import Context
from typing import TYPE_CHECKING, TypeVar

from holdfast.model.errors import LoginFailed, Unavailable
from holdfast.tasks import Tasks
from holdfast.tools.mcp.rejection import watch_login, watched_login

if TYPE_CHECKING:
    from mcp import Client

PING_TIMEOUT_SECONDS = 10.0
"""How long a server may take to answer a ping."""
CLOSE_SECONDS = 15.0
"""Longer than the library takes to kill a child process that does not exit."""

T = TypeVar("T")
Connect = Callable[[], "AbstractAsyncContextManager[Client]"]
Send = Callable[["Client"], Awaitable[T]]


class McpConnection:
    def __init__(
        self,
        connect: Connect,
        *,
        ping_seconds: float,
        connect_seconds: float,
        failure: Callable[[], str] = str,
    ) -> None:
        """`failure` returns why the transport broke; empty if it did not."""
        self._open_client = connect
        self._failure = failure
        self._ping_seconds = ping_seconds
        self._connect_seconds = connect_seconds
        self._connecting = asyncio.Lock()
        self._closing = asyncio.Event()
        self._tasks = Tasks(on_failure=None)  # `_end_task` returns why the task failed
        self._task: asyncio.Task[None] | None = None
        self._client: Client | None = None
        self._calls = 0

    async def open(self, *, instead_of: "Client | None" = None) -> "Client":
        """The open connection; opens one if there is none, or only `instead_of`. Raises Unavailable."""
        async with self._connecting:
            is_held = self._task is not None and not self._task.done()
            if self._client is not None and is_held and self._client is not instead_of:
                return self._client
            await self.close()
            self._client = await self._connect()
            return self._client

    async def request(self, send: "Send[T]", *, may_repeat: bool) -> T:
        """Send a request to the server.

        Raises Unavailable if nothing was sent, LoginFailed if the server rejected the request for lack of a login,
        ConnectionError if the server may or may not have acted, and MCPError for an error response.
        """
        client = await self.open()
        if not may_repeat and not await self._responds(client):
            client = await self.open(instead_of=client)
        try:
            return await self._send(client, send)
        except ConnectionError as e:
            if not may_repeat:
                raise
            broken = e
        try:
            return await self._send(await self.open(instead_of=client), send)
        except (Unavailable, LoginFailed) as e:
            raise ConnectionError(str(e)) from broken  # the first attempt was sent

    async def close(self) -> None:
        """End the connection and, for a child process, the process. May be called twice."""
        task, self._task, self._client = self._task, None, None
        if task is None:
            return
        self._closing.set()
        await asyncio.wait({task}, timeout=CLOSE_SECONDS)
        await _end_task(task)

    async def _connect(self) -> "Client":
        ready: asyncio.Future[Client] = asyncio.get_running_loop().create_future()
        self._closing = asyncio.Event()
        # All sessions use the connection, so its task must not belong to the call that opens it.
        context = Context()
        login = context.run(watch_login)
        self._task = task = self._tasks.start(self._keep_open(ready, self._closing), context=context)
        either: set[asyncio.Task[None] | asyncio.Future[Client]] = {task, ready}
        try:
            await asyncio.wait(either, timeout=self._connect_seconds, return_when=asyncio.FIRST_COMPLETED)
        finally:
            if not ready.done():
                task.cancel()
        if ready.done():
            return ready.result()
        is_late = not task.done()
        failure = await _end_task(task)
        if is_late:
            raise Unavailable(f"no answer within {self._connect_seconds:g} s")
        # The library tries an older protocol after a rejection, and a server may answer that with another error.
        raise Unavailable(login.last or login.first or describe_error(failure))

    async def _keep_open(self, ready: "asyncio.Future[Client]", closing: asyncio.Event) -> None:
        async with self._open_client() as client:
            ready.set_result(client)
            while not await _is_set_within(closing, within=self._ping_seconds):
                # A server that is busy with a call may not answer a ping.
                if not self._calls and not await self._responds(client):
                    return

    async def _responds(self, client: "Client") -> bool:
        from mcp import MCPError
        from mcp_types import METHOD_NOT_FOUND

        session = client.session
        with watched_login() as login:
            try:
                async with asyncio.timeout(PING_TIMEOUT_SECONDS):
                    if session.initialize_result is not None:
                        await session.send_ping()
                    else:
                        # The 2026 version of the protocol has no ping.
                        await session.send_discover(client.protocol_version)
            except TimeoutError:
                return self._calls > 0
            except MCPError as e:
                return e.code == METHOD_NOT_FOUND or bool(login.last)
        return True

    async def _send(self, client: "Client", send: "Send[T]") -> T:
        from mcp import MCPError
        from mcp_types import CONNECTION_CLOSED, REQUEST_TIMEOUT

        self._calls += 1
        with watched_login() as login:
            try:
                return await send(client)
            except MCPError as e:
                # If the server accepted the request, it may have acted, even if it rejected a later one.
                if login.first:
                    raise LoginFailed(login.first) from e
                if e.code in {CONNECTION_CLOSED, REQUEST_TIMEOUT}:
                    raise ConnectionError(self._failure() or str(e)) from e
                raise
            finally:
                self._calls -= 1


def describe_error(error: BaseException | None) -> str:
    """The root error in one line."""
    if isinstance(error, BaseExceptionGroup):
        return describe_error(error.exceptions[0])
    return f"{type(error).__name__}: {error}" if error is not None else "the connection was closed"


async def _is_set_within(event: asyncio.Event, *, within: float) -> bool:
    try:
        async with asyncio.timeout(within):
            await event.wait()
    except TimeoutError:
        return False
    return True


async def _end_task(task: asyncio.Task[None]) -> BaseException | None:
    """Cancel the task and wait for its end; return why it failed, if it did."""
    task.cancel()
    await asyncio.wait({task})
    return None if task.cancelled() else task.exception()
