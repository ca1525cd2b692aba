"""A small server for platforms that call us: one address, POST only, with a limit on what is sent."""

import asyncio
import logging
import socket
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import contextmanager

from holdfast.engine.together import stop
from holdfast.gateway.port import Options
from holdfast.model.errors import HoldfastError, Invalid, Unavailable

logger = logging.getLogger(__name__)
MAX_BODY = 2 * 1024 * 1024
STOP_SECONDS = 3.0
Headers = Mapping[str, str]
Answer = tuple[int, bytes]
Answering = Callable[[Headers, bytes], Awaitable[Answer]]
"""What is said to a request: a status and a body. The names of the headers are in small letters."""


def address(options: Options) -> tuple[str, int]:
    """Where to listen: the setting `listen`, as HOST:PORT. Raises Invalid."""
    host, colon, port = options.text("listen").rpartition(":")
    if not colon or not port.isdecimal() or int(port) > 65535:
        raise Invalid(f"listen: expected HOST:PORT, such as 127.0.0.1:8421, not {host}{colon}{port}")
    return host.strip("[]") or "127.0.0.1", int(port)


async def serve(where: tuple[str, int], answering: Answering) -> None:
    """Answer requests until cancelled. Raises Unavailable if the address is taken."""
    import uvicorn

    class Server(uvicorn.Server):
        @contextmanager
        def capture_signals(self) -> Iterator[None]:
            yield

    listener = _bind(where)
    config = uvicorn.Config(
        _application(answering), lifespan="off", ws="none", log_config=None, access_log=False, server_header=False
    )
    server = Server(config)
    task = asyncio.ensure_future(server.serve([listener]))
    try:
        await asyncio.wait({task})
        task.result()
    finally:
        # Not cancelled: the server would leave its socket open, and callers waiting at it.
        server.should_exit = server.force_exit = True
        await asyncio.wait({task}, timeout=STOP_SECONDS)
        await stop(task)
        listener.close()


def _bind(where: tuple[str, int]) -> socket.socket:
    family = socket.AF_INET6 if ":" in where[0] else socket.AF_INET
    try:
        listener = socket.socket(family, socket.SOCK_STREAM)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(where)
    except OSError as e:
        raise Unavailable(f"cannot listen on {where[0]}:{where[1]}: {e.strerror or e}") from e
    listener.listen()
    listener.setblocking(False)
    return listener


Scope = Mapping[str, object]
Receive = Callable[[], Awaitable[Mapping[str, object]]]
Send = Callable[[Mapping[str, object]], Awaitable[None]]


def _application(answering: Answering) -> Callable[[Scope, Receive, Send], Awaitable[None]]:
    async def application(scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        status, body = await _answer(scope, receive, answering)
        headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
        await send({"type": "http.response.start", "status": status, "headers": headers})
        await send({"type": "http.response.body", "body": body})

    return application


async def _answer(scope: Scope, receive: Receive, answering: Answering) -> Answer:
    """A failure to keep what came is the sender's cue to send it again."""
    if scope["method"] != "POST":
        return 405, b'{"error":"POST only"}'
    body = await _body(receive)
    if body is None:
        return 413, b'{"error":"too large"}'
    given = scope["headers"]
    assert isinstance(given, list), "that is what a server gives"
    headers = {name.decode("latin-1").lower(): value.decode("latin-1") for name, value in given}
    try:
        return await answering(headers, body)
    except HoldfastError as e:
        logger.warning("a message could not be kept: %s", e)
        return 503, b'{"error":"not kept; send it again"}'


async def _body(receive: Receive) -> bytes | None:
    body = bytearray()
    while True:
        message = await receive()
        if message["type"] != "http.request":
            return None
        piece = message.get("body", b"")
        assert isinstance(piece, bytes), "that is what a server gives"
        body += piece
        if len(body) > MAX_BODY:
            return None
        if not message.get("more_body"):
            return bytes(body)
