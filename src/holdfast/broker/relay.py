"""One request on its way to a worker and back. If the worker dies or leaves on the way, the next one is asked, where that is safe.

| the request | until its answer begins | after that |
|---|---|---|
| was not sent yet | goes to the next worker | |
| only reads, or sets what it says | is repeated | the answer is cut off; a stream of events just ends, and the client reads on |
| begins a turn | is repeated under the same idempotency key, and joins the turn that it began | a stream is told on from where it was |
| does anything else | is answered with 503, and that nobody knows | the answer is cut off |
"""

import asyncio
import logging
import re
import secrets
from collections.abc import Iterable
from contextlib import suppress

import msgspec
from starlette.types import Receive, Scope, Send

from holdfast.broker import answers
from holdfast.broker.body import Body, Left
from holdfast.broker.splice import Cut, Mismatch, Splice, splice_for
from holdfast.broker.tenant import Tenant
from holdfast.broker.wire import Broken, Exchange, Headers, connected
from holdfast.broker.worker import Worker
from holdfast.model.errors import DiskFull, Unavailable

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
"""Without these a request would be another one, so nobody can have them taken off."""
OURS = {b"date", b"x-request-id"}
"""What the broker's own server says in every answer."""
REPEATABLE = {"GET", "HEAD", "OPTIONS", "PATCH"}
KEYED = re.compile(r"/v1/(chat/completions|responses|sessions/[^/]+/turns)")
"""What begins a turn, and knows idempotency keys."""
KEY = b"idempotency-key"
LOGIN = "/ui/login"
"""Whoever logs in twice is logged in."""
TRIES = 12
MOST_REFUSAL = 64 * 1024
LOST = "the worker ended before it answered, so nobody knows whether this was done: look before you try again"
PUT_OFF = "if this was taken in before, it goes on then: look before you try again"
EVENTS = b"text/event-stream"


class Relay:
    def __init__(self, tenant: Tenant, scope: Scope, receive: Receive, send: Send, cookie: bytes | None = None) -> None:
        self._tenant = tenant
        self._method: str = scope["method"]
        self._path: str = scope["path"]
        self._target = scope["raw_path"] + (b"?" + scope["query_string"] if scope["query_string"] else b"")
        self._keyed = self._method == "POST" and KEYED.fullmatch(self._path) is not None
        self._repeatable = self._keyed or self._method in REPEATABLE or self._path == LOGIN
        self._headers = _passed_on(scope["headers"], cookie)
        self._chunked = any(name == b"transfer-encoding" for name, _ in scope["headers"])
        if self._chunked:
            self._headers = [one for one in self._headers if one[0] != b"content-length"]
        self._own_key = any(name == KEY for name, _ in self._headers)
        if self._keyed and not self._own_key:
            self._headers.append((KEY, b"broker-" + secrets.token_hex(16).encode()))
        if (known := scope.get("state", {}).get("request_id")) is not None:
            self._headers = [one for one in self._headers if one[0] != b"x-request-id"]
            self._headers.append((b"x-request-id", str(known).encode("latin-1")))
        self._body = Body(receive, keep=self._repeatable)
        self._send = send
        self._splice: Splice | None = None
        self._is_events = False
        self._begun = False

    async def run(self) -> None:
        """Have the request answered, unless the client leaves first. Raises Unavailable or DiskFull."""
        telling = asyncio.ensure_future(self._tell())
        leaving = asyncio.ensure_future(self._body.left())
        try:
            await asyncio.wait({telling, leaving}, return_when=asyncio.FIRST_COMPLETED)
            if telling.done():
                telling.result()
        except Left:
            pass  # there is nobody to tell
        finally:
            await _stopped(telling)
            await _stopped(leaving)
            self._body.close()

    async def _tell(self) -> None:
        failed: Worker | None = None
        for tried in range(TRIES):
            try:
                worker = await self._tenant.awake(failed)
            except (DiskFull, Unavailable) as e:
                if self._begun:
                    await self._end_badly(str(e), e.code)
                elif self._keyed and failed is not None and isinstance(e, DiskFull):
                    await self._put_off(e)
                else:
                    raise
                return
            if worker is failed:  # it is there after all, and did not want to
                await asyncio.sleep(0.1 * tried)
            failed = worker
            try:
                await self._ask(worker)
            except (Broken, Cut) as e:
                logger.info("%s %s of %s: %s", self._method, self._path[:200], self._tenant.user.name, e or "it leaves")
                if not await self._may_go_on(e):
                    return
            except Mismatch as e:
                await self._end_badly(str(e))
                return
            else:
                return
        if self._splice is None or not self._begun:
            raise Unavailable(f"the worker of {self._tenant.user.name} ended {TRIES} times before it answered")
        await self._end_badly("the worker ends again and again")

    async def _may_go_on(self, error: Broken | Cut) -> bool:
        """Whether the next worker is to be asked. If not, the client has been told all that can be told."""
        if self._begun:
            if self._splice is not None:
                return True
            if self._is_events:
                await self._send({"type": "http.response.body", "body": b"", "more_body": False})
                return False
            raise Unavailable("the worker ended in mid-answer") from error
        if self._repeatable or (isinstance(error, Broken) and not error.sent):
            return True
        headers = [(b"x-should-retry", b"false")]
        await answers.send_json(self._send, 503, answers.error("unavailable", LOST), headers)
        return False

    async def _put_off(self, error: DiskFull) -> None:
        """A turn that the last worker may have taken in goes on by itself: to repeat it is safe only under the client's key."""
        headers = [(b"x-should-retry", str(self._own_key).lower().encode())]
        await answers.send_json(self._send, 507, answers.error(error.code, f"{error}; {PUT_OFF}"), headers)

    async def _ask(self, worker: Worker) -> None:
        """One telling. Raises Broken, Cut or Mismatch."""
        async with connected(worker.socket, self._method) as exchange:
            sending = asyncio.ensure_future(self._send_request(exchange, worker.state.key))
            try:
                await self._head(exchange, sending)
                if not self._begun and exchange.status == 503 and self._repeatable:
                    await self._refuse_or_wait(exchange, worker)
                    return
                await self._pass_on(exchange)
            finally:
                await _stopped(sending)

    async def _send_request(self, exchange: Exchange, key: str) -> None:
        headers = [*self._headers, (b"authorization", b"Bearer " + key.encode())]
        if self._chunked:
            headers.append((b"transfer-encoding", b"chunked"))
        await exchange.send(self._method, self._target, headers)
        async for piece in self._body.pieces():
            await self._tenant.pace.carried(len(piece))
            await exchange.send_piece(piece, chunked=self._chunked)
        await exchange.send_end(chunked=self._chunked)

    async def _head(self, exchange: Exchange, sending: "asyncio.Future[None]") -> None:
        """Wait for the answer's beginning, which may come before the request's end. Raises what the client's side raises."""
        heading = asyncio.ensure_future(exchange.head())
        try:
            await asyncio.wait({heading, sending}, return_when=asyncio.FIRST_COMPLETED)
            error = sending.exception() if sending.done() else None
            if error is not None and not isinstance(error, Broken):  # that one, the answer tells better
                raise error
            await heading
        finally:
            await _stopped(heading)

    async def _refuse_or_wait(self, exchange: Exchange, worker: Worker) -> None:
        """A 503 is the worker's answer, or means that it is about to end: then the next one is asked."""
        body = b""
        async for piece in exchange.body():
            body += piece[: MOST_REFUSAL - len(body)]
        if not await worker.answers():
            raise Broken("it leaves", sent=False)
        await self._start(exchange)
        await self._send({"type": "http.response.body", "body": body, "more_body": False})

    async def _start(self, exchange: Exchange) -> None:
        headers = [one for one in _passed_on(exchange.headers) if one[0] not in OURS]
        await self._send({"type": "http.response.start", "status": exchange.status, "headers": headers})
        self._begun = True

    async def _pass_on(self, exchange: Exchange) -> None:
        if not self._begun:
            self._is_events = any(
                name == b"content-type" and value.startswith(EVENTS) for name, value in exchange.headers
            )
            self._splice = splice_for(self._path) if self._keyed and self._is_events else None
            await self._start(exchange)
        elif exchange.status != 200:
            raise Mismatch("the request was not taken up again")
        if self._splice is not None:
            self._splice.begin()
        async for piece in exchange.body():
            news = piece if self._splice is None else self._splice.take(piece)
            if news:
                await self._send({"type": "http.response.body", "body": news, "more_body": True})
                await self._tenant.pace.carried(len(news))
        await self._send({"type": "http.response.body", "body": b"", "more_body": False})

    async def _end_badly(self, why: str, code: str = Unavailable.code) -> None:
        """The last event of a stream that cannot be told on."""
        document = msgspec.json.encode(answers.error(code, f"the stream cannot be told on: {why}"))
        last = b"data: " + document + b"\n\ndata: [DONE]\n\n"
        with suppress(OSError):
            await self._send({"type": "http.response.body", "body": last, "more_body": False})


async def _stopped(task: "asyncio.Future[None]") -> None:
    """End it, and take note of how it ended: whoever needed it has looked already."""
    task.cancel()
    await asyncio.wait({task})
    if not task.cancelled():
        task.exception()


def _passed_on(headers: Iterable[tuple[bytes, bytes]], cookie: bytes | None = None) -> Headers:
    """The headers without those that are between two neighbours only. Of cookies and keys, none but what is given."""
    given = [(name.lower(), value) for name, value in headers]
    named = {word.strip().lower() for name, value in given if name == b"connection" for word in value.split(b",")}
    left_out = HOP_BY_HOP | (named - FRAMING) | {b"authorization", b"cookie", b"expect"}
    kept = [(name, value) for name, value in given if name not in left_out]
    return kept if cookie is None else [*kept, (b"cookie", cookie)]
