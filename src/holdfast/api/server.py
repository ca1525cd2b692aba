"""Listens, and stops listening: a socket, a parser with limits, and a drain that leaves no stream without an end."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import msgspec
import uvicorn
from starlette.types import ASGIApp
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from holdfast.api.errors import Refusal
from holdfast.model.errors import Invalid, Unavailable

MAX_HEAD = 64 * 1024
"""Bytes of the request line and the headers together."""
GRACE_SECONDS = 15
"""How long connections may take to end once the engine is drained."""
LAST_TURNS = 10
"""Of the event loop, which makes a connection in three."""
BACKLOG = 2048


class Protocol(HttpToolsProtocol):
    """As uvicorn's, but what cannot be parsed is answered in the shape of every other error, and headers have a limit."""

    _head_bytes = 0
    _is_in_head = True

    def on_message_begin(self) -> None:
        self._head_bytes, self._is_in_head = 0, True
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        self._is_in_head = False
        super().on_headers_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self._is_in_head:
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEAD and not self.transport.is_closing():
                self._refuse(431, "headers_too_large", f"the headers are over the limit of {MAX_HEAD:,} bytes")

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "invalid_http", "this is not HTTP, or a header holds characters that it must not")

    def _refuse(self, status: int, code: str, message: str) -> None:
        content = msgspec.json.encode(Refusal(status, code, message).body())
        head = f"HTTP/1.1 {status} Bad Request\r\ncontent-type: application/json\r\ncontent-length: {len(content)}\r\n"
        self.transport.write(head.encode("ascii") + b"connection: close\r\n\r\n" + content)
        self.transport.close()


class Server(uvicorn.Server):
    """Leaves signals to the command, and says when it listens."""

    def __init__(self, app: ASGIApp, on_started: Callable[[], object]) -> None:
        config = uvicorn.Config(
            app,
            http=Protocol,
            ws="none",
            lifespan="off",
            loop="none",
            log_config=None,
            access_log=False,
            server_header=False,
            proxy_headers=False,
            timeout_graceful_shutdown=GRACE_SECONDS,
            timeout_keep_alive=30,
        )
        super().__init__(config)
        self._on_started = on_started
        self.doors_closed = asyncio.Event()
        """Set when nobody comes in any more."""

    @contextmanager
    def capture_signals(self) -> Iterator[None]:
        yield

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        self._on_started()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        await self._let_in_the_last()
        self.doors_closed.set()  # they are before anybody can hear of it: up to its first wait this runs alone
        await super().shutdown(sockets)

    async def _let_in_the_last(self) -> None:
        """Accept nobody more, and wait for the connections of those who were accepted.

        A connection that is made behind closed doors is never told to end, or never answered.
        """
        loop = asyncio.get_running_loop()
        for listening in self.servers:
            for one in listening.sockets:
                loop.remove_reader(one.fileno())
        for _ in range(LAST_TURNS):
            await asyncio.sleep(0)

    def stop(self, more_seconds: float = 0.0) -> None:
        """Accept nothing more; `serve` returns when the last connection has ended, or its time is up."""
        if not self.should_exit:
            self.config.timeout_graceful_shutdown = GRACE_SECONDS + int(more_seconds)
        self.should_exit = True


def listen(host: str, port: int) -> socket.socket:
    """A socket that connections wait at. Raises Unavailable if somebody else has the port."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    bare = host.strip("[]")
    try:
        # With the protocol named, asyncio turns Nagle's algorithm off; else each reply waits 40 ms for an acknowledgement.
        listener = socket.socket(family, socket.SOCK_STREAM, socket.IPPROTO_TCP)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind((bare, port))
    except OSError as e:
        raise Unavailable(f"cannot listen on {host}:{port}: {e.strerror or e}") from e
    listener.listen(BACKLOG)
    listener.setblocking(False)
    return listener


def inherited(descriptor: int) -> socket.socket:
    """A socket that whoever started us listens at. Raises Invalid if it is none."""
    try:
        listener = socket.socket(fileno=descriptor)
    except OSError as e:
        raise Invalid(f"the descriptor {descriptor} is no socket: {e.strerror or e}") from e
    if not listener.getsockopt(socket.SOL_SOCKET, socket.SO_ACCEPTCONN):
        raise Invalid(f"nobody listens at the descriptor {descriptor}")
    listener.setblocking(False)
    return listener


def address(listener: socket.socket) -> str:
    """Where clients find the server."""
    if listener.family == socket.AF_UNIX:
        return f"unix:{listener.getsockname()}"
    host, port = listener.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"
