"""Forwards one request to a worker. If the worker dies or shuts down meanwhile, the next one gets the request, where that is safe.

| the request | before the response starts | after that |
|---|---|---|
| was not sent yet | goes to the next worker | |
| only reads, or is idempotent | is repeated | the response is cut off; an event stream just ends, and the client resumes |
| starts a turn | is repeated with the same idempotency key and joins the turn it started | the stream resumes at the exact character |
| does anything else | gets 503: the outcome is unknown | the response is cut off |
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress

from starlette.types import Receive, Scope, Send

from holdfast import sse
from holdfast.broker import responses
from holdfast.broker.http_client import ConnectionBroken, Headers, HttpExchange, connect
from holdfast.broker.request_body import ClientDisconnected, RequestBody
from holdfast.broker.stream_resume import StreamCut, StreamMismatch, StreamResume, resume_for
from holdfast.broker.tenant import Tenant
from holdfast.broker.worker import WorkerProcess
from holdfast.model.errors import DiskFull, Unavailable
from holdfast.tasks import running, wait_for_first

logger = logging.getLogger(__name__)
HOP_BY_HOP = {
    b"connection",
    b"keep-alive",
    b"proxy-authenticate",
    b"proxy-authorization",
    b"proxy-connection",
    b"te",
    b"trailer",
    b"transfer-encoding",
    b"upgrade",
}
FRAMING = {b"content-length", b"host"}
"""Headers that define the request: a Connection header cannot remove them."""
SERVER_HEADERS = {b"date", b"x-request-id"}
"""Headers that the broker's own server adds to every response."""
REPEATABLE_METHODS = {"GET", "HEAD", "OPTIONS", "PATCH"}
TURN_PATHS = re.compile(r"/v1/(chat/completions|responses|sessions/[^/]+/turns)")
"""Routes that start a turn and accept idempotency keys."""
IDEMPOTENCY_KEY = b"idempotency-key"
LOGIN_PATH = "/ui/login"
"""A login can be repeated safely."""
MAX_ATTEMPTS = 12
MAX_ERROR_BYTES = 64 * 1024
OUTCOME_UNKNOWN = "the worker died before it responded, so the outcome is unknown; check before you retry"
MAY_CONTINUE = "if the request was accepted before, it continues then; check before you retry"
EVENT_STREAM = b"text/event-stream"


class Proxy:
    def __init__(self, tenant: Tenant, scope: Scope, receive: Receive, send: Send, cookie: bytes | None = None) -> None:
        self._tenant = tenant
        self._method: str = scope["method"]
        self._path: str = scope["path"]
        self._target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        self._keyed = self._method == "POST" and TURN_PATHS.fullmatch(self._path) is not None
        self._repeatable = self._keyed or self._method in REPEATABLE_METHODS or self._path == LOGIN_PATH
        self._headers = _end_to_end_headers(scope["headers"], cookie)
        self._chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
        if self._chunked:
            self._headers = [one for one in self._headers if one[0] != b"content-length"]
        self._own_key = any(name == IDEMPOTENCY_KEY for name, _ in self._headers)
        if self._keyed and not self._own_key:
            self._headers.append((IDEMPOTENCY_KEY, b"broker-" + secrets.token_hex(16).encode()))
        if (known := scope.get("state", {}).get("request_id")) is not None:
            self._headers = [one for one in self._headers if one[0] != b"x-request-id"]
            self._headers.append((b"x-request-id", str(known).encode("latin-1")))
        self._body = RequestBody(receive, keep=self._repeatable)
        self._send = send
        self._resume: StreamResume | None = None
        self._is_events = False
        self._started = False

    async def run(self) -> None:
        """Forward the request and the response, unless the client disconnects. Raises Unavailable or DiskFull."""
        try:
            async with running(self._forward(), self._body.wait_disconnected()) as (forwarding, disconnecting):
                await wait_for_first(forwarding, disconnecting)
                if forwarding.done():
                    forwarding.result()
        except ClientDisconnected:
            pass  # the client has disconnected
        finally:
            self._body.close()

    async def _forward(self) -> None:
        failed: WorkerProcess | None = None
        for tried in range(MAX_ATTEMPTS):
            try:
                worker = await self._tenant.get_worker(failed)
            except (DiskFull, Unavailable) as e:
                if self._started:
                    await self._end_with_error(str(e), e.code)
                elif self._keyed and failed is not None and isinstance(e, DiskFull):
                    await self._refuse_accepted(e)
                else:
                    raise
                return
            if worker is failed:  # it is still running, but failed this request
                await asyncio.sleep(0.1 * tried)
            failed = worker
            try:
                await self._attempt(worker)
            except (ConnectionBroken, StreamCut) as e:
                logger.info(
                    "%s %s of %s: %s",
                    self._method,
                    self._path[:200],
                    self._tenant.user.name,
                    e or "it is shutting down",
                )
                if not await self._may_retry(e):
                    return
            except StreamMismatch as e:
                await self._end_with_error(str(e))
                return
            else:
                return
        if self._resume is None or not self._started:
            raise Unavailable(f"the worker of {self._tenant.user.name} died {MAX_ATTEMPTS} times before it responded")
        await self._end_with_error("the worker keeps dying")

    async def _may_retry(self, error: ConnectionBroken | StreamCut) -> bool:
        """Return whether to try the next worker. If not, the response is finished."""
        if self._started:
            if self._resume is not None:
                return True
            if self._is_events:
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
                return False
            raise Unavailable("the worker died during the response") from error
        if self._repeatable or (isinstance(error, ConnectionBroken) and not error.sent):
            return True
        headers = [(b"x-should-retry", b"false")]
        await responses.send_json(self._send, 503, responses.error("unavailable", OUTCOME_UNKNOWN), headers)
        return False

    async def _refuse_accepted(self, error: DiskFull) -> None:
        """Refuse a request that the last worker may have accepted: a retry is safe only with the client's idempotency key."""
        headers = [(b"x-should-retry", str(self._own_key).lower().encode())]
        await responses.send_json(self._send, 507, responses.error(error.code, f"{error}; {MAY_CONTINUE}"), headers)

    async def _attempt(self, worker: WorkerProcess) -> None:
        """Make one attempt. Raises ConnectionBroken, StreamCut or StreamMismatch."""
        async with (
            connect(worker.socket, self._method) as exchange,
            running(self._send_request(exchange, worker.state.key)) as (sending,),
        ):
            await self._head(exchange, sending)
            if not self._started and exchange.status == 503 and self._repeatable:
                await self._forward_503(exchange, worker)
                return
            await self._forward_body(exchange)

    async def _send_request(self, exchange: HttpExchange, key: str) -> None:
        headers = [*self._headers, (b"authorization", b"Bearer " + key.encode())]
        if self._chunked:
            headers.append((b"transfer-encoding", b"chunked"))
        await exchange.send(self._method, self._target, headers)
        async for piece in self._body.pieces():
            await self._tenant.rate_limit.consume(len(piece))
            await exchange.send_piece(piece, chunked=self._chunked)
        await exchange.send_end(chunked=self._chunked)

    async def _head(self, exchange: HttpExchange, sending: "asyncio.Future[None]") -> None:
        """Wait for the response's headers, which may arrive before the request is complete. Raises errors of the client's side."""
        async with running(exchange.head()) as (heading,):
            await wait_for_first(heading, sending)
            error = sending.exception() if sending.done() else None
            if error is not None and not isinstance(error, ConnectionBroken):  # the response explains that one better
                raise error
            await heading

    async def _forward_503(self, exchange: HttpExchange, worker: WorkerProcess) -> None:
        """Forward a 503, unless the worker is shutting down: then try the next one."""
        body = b""
        async for piece in exchange.body():
            body += piece[: MAX_ERROR_BYTES - len(body)]
        if not await worker.is_ready():
            raise ConnectionBroken("it is shutting down", sent=False)
        await self._start(exchange)
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def _start(self, exchange: HttpExchange) -> None:
        headers = [one for one in _end_to_end_headers(exchange.headers) if one[0] not in SERVER_HEADERS]
        await self._send({"type": "http.response.start", "status": exchange.status, "headers": headers})
        self._started = True

    async def _forward_body(self, exchange: HttpExchange) -> None:
        if not self._started:
            self._is_events = any(
                name == b"content-type" and value.startswith(EVENT_STREAM) for name, value in exchange.headers
            )
            self._resume = resume_for(self._path) if self._keyed and self._is_events else None
            await self._start(exchange)
        elif exchange.status != 200:
            raise StreamMismatch("the worker did not resume the request")
        if self._resume is not None:
            self._resume.begin()
        async for piece in exchange.body():
            new = piece if self._resume is None else self._resume.take(piece)
            if new:
                await self._send({"type": "http.response.body", "body": new, "more_body": True})
                await self._tenant.rate_limit.consume(len(new))
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _end_with_error(self, why: str, code: str = Unavailable.code) -> None:
        """Send the last event of a stream that cannot resume."""
        last = sse.format_event(responses.error(code, f"the stream cannot resume: {why}")) + sse.DONE
        with suppress(OSError):
            await self._send({"type": "http.response.body", "body": last, "more_body": False})


def _end_to_end_headers(headers: Iterable[tuple[bytes, bytes]], cookie: bytes | None = None) -> Headers:
    """Return the headers without hop-by-hop ones, keys and cookies; `cookie` is added."""
    given = [(name.lower(), value) for name, value in headers]
    named = {word.strip().lower() for name, value in given if name == b"connection" for word in value.split(b",")}
    left_out = HOP_BY_HOP | (named - FRAMING) | {b"authorization", b"x-api-key", b"cookie", b"expect"}
    kept = [(name, value) for name, value in given if name not in left_out]
    return kept if cookie is None else [*kept, (b"cookie", cookie)]
