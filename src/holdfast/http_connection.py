"""One HTTP connection, with limits on header size, client delays and the number of connections."""

import asyncio
import http
import resource
from typing import Any, Literal, cast

import msgspec
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

MAX_HEADER_BYTES = 64 * 1024
"""Bytes of the request line and the headers together."""
MAX_DESCRIPTORS = 65_536
"""Per process: enough for any load, and low enough for child processes that close all descriptors."""
MAX_JOINED_BYTES = 16 * 1024
"""Bytes of a response that are collected before they are sent."""
RESERVED_DESCRIPTORS = 128
"""Descriptors kept for the store, tools, providers and log files."""

ERROR_TYPE = {401: "authentication_error", 403: "permission_error", 404: "not_found_error", 409: "conflict_error"}
ERROR_TYPE |= {402: "insufficient_quota", 429: "rate_limit_error"}
"""Error type by status; any other below 500 is an invalid request."""
SERVER_LEAVES = 1012
"""The code with which a WebSocket is closed at shutdown."""
SHUTDOWN_MARK = "holdfast.shutdown"
"""A field of the last message of a WebSocket at shutdown: a client may close it with any code."""
INVALID_KEY_MESSAGE = "API key missing or wrong; send Authorization: Bearer KEY or x-api-key: KEY"


class ConnectionLimits(msgspec.Struct, frozen=True):
    """Time limits for clients in seconds, and the first file descriptor not available for connections."""

    head_seconds: float = 10.0
    body_seconds: float = 30.0
    """Between two chunks of a request's body."""
    idle_seconds: int = 75
    """Between two requests."""
    ping_seconds: float = 20.0
    """Between two pings on a WebSocket, and for the answer to one."""
    descriptors: int = MAX_DESCRIPTORS
    whole_body_seconds: float = 60.0
    """For a small body. A larger one may take as long as it does at `slowest_rate`."""
    slowest_rate: int = 16 * 1024
    """Bytes per second: 32 MB may take 35 minutes."""

    def whole_body(self, size: int) -> float:
        """How long a body of so many bytes may take."""
        return self.whole_body_seconds + size / self.slowest_rate


DEFAULT_LIMITS = ConnectionLimits()


def raise_descriptor_limit() -> ConnectionLimits:
    """Raise the descriptor limit to the hard limit; return the resulting connection limits."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, MAX_DESCRIPTORS)
    resource.setrlimit(resource.RLIMIT_NOFILE, (limit, hard))
    return current_limits()


def current_limits() -> ConnectionLimits:
    """Derive the connection limits from the current descriptor limit."""
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    limit = MAX_DESCRIPTORS if soft == resource.RLIM_INFINITY else min(soft, MAX_DESCRIPTORS)
    return ConnectionLimits(descriptors=limit - min(RESERVED_DESCRIPTORS, limit * 3 // 8))


def error_body(status: int, code: str, message: str, param: str | None = None) -> dict[str, object]:
    """Build an error in the shape of the OpenAI API."""
    kind = ERROR_TYPE.get(status, "invalid_request_error" if status < 500 else "server_error")
    return {"error": {"message": message, "type": kind, "code": code, "param": param}}


class JoiningTransport:
    """Sends what is written during one iteration of the event loop with one system call.

    Uvicorn writes the head of a response, each chunk and the end separately, and each system call costs as much as
    hundreds of lines of Python.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop) -> None:
        self._transport = transport
        self._loop = loop
        self._pending: list[bytes] = []
        self._pending_bytes = 0

    def __getattr__(self, name: str) -> Any:
        return getattr(self._transport, name)

    def write(self, data: bytes) -> None:
        """Send the data at the end of this iteration, or now if it is much: then the transport can pause the writer."""
        if not self._pending:
            self._loop.call_soon(self._send)
        self._pending.append(data)
        self._pending_bytes += len(data)
        if self._pending_bytes > MAX_JOINED_BYTES:
            self._send()

    def close(self) -> None:
        self._send()
        self._transport.close()

    def _send(self) -> None:
        data, self._pending, self._pending_bytes = b"".join(self._pending), [], 0
        if data and not self._transport.is_closing():
            self._transport.write(data)


class HttpConnection(HttpToolsProtocol):
    """Uvicorn's protocol with our limits; refusals have the shape of every other error."""

    def __init__(self, *args: Any, limits: ConnectionLimits, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self._limits = limits
        self._head_bytes = 0
        self._phase: Literal["head", "body", "answer", "upgraded"] = "head"
        self._timer: asyncio.TimerHandle | None = None
        self._body_began_at = 0.0
        self._body_length: int | None = None
        """As announced; None for a body in chunks."""
        self._body_bytes = 0

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override] # as in uvicorn
        super().connection_made(cast("asyncio.Transport", JoiningTransport(transport, self.loop)))
        # The kernel assigns the lowest free number: a high one means that all below are in use.
        if transport.get_extra_info("socket").fileno() >= self._limits.descriptors:
            self._refuse(503, "unavailable", "too many open connections; retry in a moment")
            return
        self._wait("head")

    def connection_lost(self, exc: Exception | None) -> None:
        self._stop_timer()
        super().connection_lost(exc)

    def on_message_begin(self) -> None:
        self._head_bytes = 0
        if self._phase != "head" or self._timer is None:
            self._wait("head")
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        announced = next((value for name, value in self.headers if name == b"content-length"), None)
        self._body_length = None if announced is None else int(announced)  # the parser has checked it
        self._body_began_at, self._body_bytes = self.loop.time(), 0
        self._wait("body")
        super().on_headers_complete()

    def on_body(self, body: bytes) -> None:
        self._body_bytes += len(body)
        self._wait("body")
        super().on_body(body)

    def on_message_complete(self) -> None:
        self._stop_timer()
        self._phase = "answer"
        super().on_message_complete()

    def data_received(self, data: bytes) -> None:
        super().data_received(data)
        if self.transport.is_closing():
            return
        if self._phase == "head":
            self._head_bytes += len(data)
            if self._head_bytes > MAX_HEADER_BYTES:
                self._refuse(431, "headers_too_large", f"the headers exceed the limit of {MAX_HEADER_BYTES:,} bytes")
        elif self._phase == "answer" and (self.cycle is None or self.cycle.response_complete):
            self._wait("head")  # bytes that start no request have stopped the idle timer

    def send_400_response(self, msg: str) -> None:
        self._refuse(400, "invalid_http", "invalid HTTP request, or invalid characters in a header")

    def handle_websocket_upgrade(self) -> None:
        super().handle_websocket_upgrade()
        self._stop_timer()
        self._phase = "upgraded"

    # time

    def _wait(self, phase: Literal["head", "body"]) -> None:
        """Start the timer of this phase."""
        self._stop_timer()
        self._phase = phase
        seconds = (
            self._limits.head_seconds if phase == "head" else min(self._limits.body_seconds, self._body_seconds_left)
        )
        self._timer = self.loop.call_later(seconds, self._time_out)

    @property
    def _body_seconds_left(self) -> float:
        """Until the whole body must be here. In chunks, each one gives time for as many bytes."""
        size = self._body_bytes if self._body_length is None else self._body_length
        return max(0.0, self._body_began_at + self._limits.whole_body(size) - self.loop.time())

    def _stop_timer(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _time_out(self) -> None:
        if self.transport.is_closing():
            return
        under_way = self.cycle is not None and not self.cycle.response_complete
        if self._phase == "head" and under_way:  # an earlier request on this connection is still running
            self._wait("head")
        elif self._phase == "body" and self.flow.read_paused:  # we stopped reading, not the client
            self._body_began_at = self.loop.time()
            self._wait("body")
        elif under_way and self.cycle.response_started:
            self.transport.close()
        else:
            what = "headers" if self._phase == "head" else "body"
            self._refuse(408, "request_timeout", f"the {what} of the request did not arrive in time")

    def _refuse(self, status: int, code: str, message: str) -> None:
        self._stop_timer()
        content = msgspec.json.encode(error_body(status, code, message))
        line = f"HTTP/1.1 {status} {http.HTTPStatus(status).phrase}\r\n"
        head = f"{line}content-type: application/json\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode("ascii") + content)
        self.transport.close()
        if self.cycle is not None and not self.cycle.response_complete:
            self.cycle.disconnected = True
            self.cycle.message_event.set()
