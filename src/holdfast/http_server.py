"""The HTTP server of the API, the broker and the gateway, with connection limits and a graceful shutdown."""

import asyncio
import errno
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import cast

import uvicorn
from starlette.types import ASGIApp

from holdfast.http_connection import DEFAULT_LIMITS, ConnectionLimits, HttpConnection
from holdfast.model.errors import Invalid, Unavailable
from holdfast.process_slots import ProcessSlot
from holdfast.shared_listener import SharedListener

GRACE_SECONDS = 15
"""Time for connections to finish after the engine is drained."""
ACCEPT_LOOPS = 10
"""Event loop iterations to wait for accepted connections; asyncio needs three."""
BACKLOG = 2048
ACCEPTED_AT_ONCE = 16
"""Connections accepted before the descriptor limit is checked."""


class HttpServer(uvicorn.Server):
    """Uvicorn's server without signal handling; calls `on_started` when it listens.

    With a slot, it shares its one listening socket with other processes.
    """

    def __init__(
        self,
        app: ASGIApp,
        on_started: Callable[[], object],
        limits: ConnectionLimits = DEFAULT_LIMITS,
        slot: ProcessSlot | None = None,
        *,
        max_message: int = 0,
    ) -> None:
        """`max_message` is the size limit of a WebSocket message in bytes; 0 if the application has no WebSockets."""
        config = uvicorn.Config(
            app,
            http=cast("type[HttpConnection]", partial(HttpConnection, limits=limits)),
            ws=_websockets() if max_message else "none",
            ws_max_size=max_message,
            ws_ping_interval=limits.ping_seconds,
            ws_ping_timeout=limits.ping_seconds,
            ws_per_message_deflate=False,
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            timeout_keep_alive=limits.idle_seconds,
            backlog=ACCEPTED_AT_ONCE,
        )
        super().__init__(config)
        self._on_started = on_started
        self._limits = limits
        self._slot = slot
        self._shared: SharedListener | None = None
        self.accepting_stopped = asyncio.Event()
        """Set when no more connections are accepted."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        if self._slot is None:
            await super().startup(sockets)
            for listener in sockets or []:
                listener.listen(BACKLOG)  # asyncio set the backlog to the number accepted at once
        else:
            [listener] = sockets or []
            await super().startup([])
            self._shared = SharedListener(listener, self._slot, self._new_connection, self._count_connections)
            self._shared.start()
        self._on_started()

    def _new_connection(self) -> asyncio.Protocol:
        return HttpConnection(self.config, self.server_state, self.lifespan.state, limits=self._limits)

    def _count_connections(self) -> int:
        return len(self.server_state.connections)

    async def on_tick(self, counter: int) -> bool:
        if self._shared is not None:
            self._shared.report()
        return await super().on_tick(counter)

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._finish_accepting()
        self.accepting_stopped.set()  # super().shutdown closes the sockets before its first await, so no waiter runs earlier
        await super().shutdown(sockets)

    async def _finish_accepting(self) -> None:
        """Stop accepting, and wait until accepted sockets have become connections.

        A connection made after the shutdown would never be closed, or never get a response.
        """
        if self._shared is not None:
            await self._shared.stop()
        loop = asyncio.get_running_loop()
        for listening in self.servers:
            for one in listening.sockets:
                loop.remove_reader(one.fileno())
        for _ in range(ACCEPT_LOOPS):
            await asyncio.sleep(0)

    def stop(self, more_seconds: float = 0.0) -> None:
        """Stop accepting; `serve` returns when the last connection has ended or timed out."""
        if not self.should_exit:
            self.config.timeout_graceful_shutdown = GRACE_SECONDS + int(more_seconds)
        self.should_exit = True


def _websockets() -> type[asyncio.Protocol]:
    """Import the protocol only where it is used: the import takes a while."""
    from holdfast.websocket_connection import WebSocketConnection

    return WebSocketConnection


def listen(host: str, port: int) -> socket.socket:
    """Open a listening socket. Raises Unavailable if the port is in use."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bare = host.strip("[]")
    listener = None
    try:
        # With the protocol given, asyncio disables Nagle's algorithm; otherwise each response waits 40 ms for an acknowledgement.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((bare, port))
    except OSError as e:
        if listener is not None:
            listener.close()
        advice = "; stop the program that uses it, or choose another port" if e.errno == errno.EADDRINUSE else ""
        raise Unavailable(f"cannot listen on {host}:{port}: {e.strerror or e}{advice}") from e
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def adopt_socket(descriptor: int) -> socket.socket:
    """Adopt a listening socket from the parent process. Raises Invalid if it is not one."""
    try:
        listener = socket.socket(fileno=descriptor)
    except OSError as e:
        raise Invalid(f"descriptor {descriptor} is not a socket: {e.strerror or e}") from e
    if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise Invalid(f"descriptor {descriptor} is not a listening socket")
    listener.setblocking(False)
    return listener


def listener_address(listener: socket.socket) -> str:
    """Return the URL of the server."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
