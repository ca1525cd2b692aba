"""`GET /v1/responses` as a WebSocket: each message `response.create` starts a response, whose events are text frames.

The messages of a connection are answered one after the other, in their order. A response that was not to be stored can be
continued on its connection only, until another one follows it or a request that continues it fails.
"""

import asyncio
from contextlib import aclosing

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message
from starlette.websockets import WebSocket, WebSocketDisconnect

from holdfast import sse
from holdfast.api.context import ApiContext, get_context
from holdfast.api.errors import ApiError, translate
from holdfast.api.openai import chat_request
from holdfast.api.openai.chat import LARGE_BODY
from holdfast.api.openai.responses import request as request_parser
from holdfast.api.openai.responses.creation import start_response
from holdfast.api.openai.responses.document import Object
from holdfast.api.openai.responses.request import ParsedResponsesRequest
from holdfast.http_connection import SERVER_LEAVES, SHUTDOWN_MARK
from holdfast.model.errors import HoldfastError
from holdfast.tasks import running, wait_for_first

MAX_WAITING = 16
"""Messages that may wait for the response before them."""
POLICY_VIOLATION = 1008
CREATE = "response.create"
PREVIOUS = "previous_response_id"
NO_EFFECT: dict[str, object] = {"stream": True, "stream_options": {}, "background": False, "generate": True}
"""Parameters that have one possible value on a WebSocket."""


async def require_upgrade(request: Request) -> Response:
    """Open a WebSocket (RFC 6455) on which responses are created. Without an upgrade: 426."""
    error = ApiError(426, "upgrade_required", "GET /v1/responses needs a WebSocket; create a response with POST")
    error.headers["upgrade"] = "websocket"
    raise error


async def serve(websocket: WebSocket) -> None:
    """Serve a connection until the client leaves or the server shuts down. Accepted requests continue in any case."""
    if "idempotency-key" in websocket.headers:
        reason = "a connection has many requests; an Idempotency-Key cannot identify one of them"
        raise ApiError(400, "invalid_header", reason, "Idempotency-Key")
    await websocket.accept()
    context = get_context(websocket)
    waiting = WaitingMessages(websocket, context.settings.api.max_body_mb * 2**20)
    try:
        async with running(waiting.receive(), ResponseSocket(context, websocket, waiting).answer()) as tasks:
            receiving, answering = tasks
            await wait_for_first(receiving, answering)
            if answering.done() or receiving.result():
                await answering
        if waiting.excess:  # nothing else is sent any more
            await websocket.close(POLICY_VIOLATION, waiting.excess)
    except WebSocketDisconnect:
        pass  # the client has disconnected


class WaitingMessages:
    """Receives the messages of a connection all the time, so that a lost connection is noticed."""

    def __init__(self, websocket: WebSocket, max_size: int) -> None:
        self._websocket = websocket
        self._max_size = max_size
        self._queue: asyncio.Queue[Message | None] = asyncio.Queue()
        self._size = 0
        self.excess = ""
        """Which limit was exceeded, if any."""

    async def receive(self) -> bool:
        """Receive until the connection ends or too much is waiting. Returns whether the server ends it."""
        while (message := await self._websocket.receive())["type"] == "websocket.receive":
            self._size += _size(message)
            if self._queue.qsize() >= MAX_WAITING:
                self.excess = f"more than {MAX_WAITING} messages are waiting"
            elif self._size > self._max_size:
                self.excess = f"more than {self._max_size:,} characters are waiting"
            if self.excess:
                return False
            self._queue.put_nowait(message)
        is_leaving = SHUTDOWN_MARK in message
        if is_leaving:
            self._queue.put_nowait(None)
        return is_leaving

    async def get(self) -> Message | None:
        """The next message; None if no more come."""
        message = await self._queue.get()
        self._size -= 0 if message is None else _size(message)
        return message


def _size(message: Message) -> int:
    return len(message.get("text") or message.get("bytes") or "")


class ResponseSocket:
    """Answers the messages of one connection."""

    def __init__(self, context: ApiContext, websocket: WebSocket, waiting: WaitingMessages) -> None:
        self._context = context
        self._websocket = websocket
        self._waiting = waiting
        self._unstored: set[str] = set()
        """The latest response, if it was not to be stored."""

    async def answer(self) -> None:
        """Answer the messages in their order, until no more come; then close the connection."""
        while (message := await self._waiting.get()) is not None:
            try:
                await self._create(await _parse(message))
            except ApiError as e:
                await self._send_error(e)
            except HoldfastError as e:
                await self._send_error(translate(e))
        await self._websocket.close(SERVER_LEAVES, "shutting down; accepted requests resume after restart")

    async def _create(self, wanted: ParsedResponsesRequest) -> None:
        """Run one response. A failure makes the response that it continues unknown here, as in OpenAI's API."""
        known = frozenset(self._unstored)
        self._unstored.clear()
        try:
            reply = await start_response(self._context, self._websocket, wanted, known)
        except ApiError as e:
            if e.code == "response_not_found" and e.param == PREVIOUS:
                raise ApiError(400, "previous_response_not_found", e.message, PREVIOUS) from e
            raise
        async with aclosing(reply.stream()) as events:
            async for event in events:
                if event is not None:
                    await self._send(event)
        about, ended = reply.events.about, reply.events.ended
        if ended is not None and ended.outcome == "done" and not about.is_stored:
            self._unstored.add(about.id)

    async def _send(self, event: Object) -> None:
        await self._websocket.send_text(sse.encode_json(event).decode())

    async def _send_error(self, error: ApiError) -> None:
        await self._send({"type": "error", "status": error.status, **error.body()})


async def _parse(message: Message) -> ParsedResponsesRequest:
    text = message.get("text")
    if text is None:
        raise ApiError(400, "invalid_json", "a message must be a text frame with a JSON object")
    if len(text) > LARGE_BODY:
        return await asyncio.to_thread(_parse_text, text)
    return _parse_text(text)


def _parse_text(text: str) -> ParsedResponsesRequest:
    """Parse one message. Raises ApiError naming what is wrong."""
    data = chat_request.decode(text.encode("utf-8", "surrogatepass"))
    if data.pop("type", None) != CREATE:
        raise ApiError(400, "invalid_value", f"type must be {CREATE}", "type")
    for name, value in NO_EFFECT.items():
        if data.pop(name, None) not in (None, value):
            reason = f"parameter {name} is not supported on a WebSocket, where every response is streamed"
            raise ApiError(400, "unsupported_parameter", reason, name)
    return request_parser.parse_data({**data, "stream": True})
