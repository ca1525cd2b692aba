"""What every request passes: its id, the host it asked for, its key, and how large it may be. Nothing is parsed before."""

import asyncio
import ipaddress
import logging
import re
from collections.abc import Callable, Iterable, MutableMapping
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.api.auth import Lock
from holdfast.api.errors import Refusal, bug, translate
from holdfast.model.errors import HoldfastError

logger = logging.getLogger(__name__)

OPEN = ("/health",)
"""What may be asked without a key."""
PAGES = re.compile(r"/(ui(/.*)?)?", re.DOTALL)
"""The dashboard's: it looks at its visitors itself."""
SANE_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
EXPOSED = "x-request-id, x-session-id, x-session-new, x-session-epoch, x-session-seq, x-session-forked-from, x-turn-id"


class Rules:
    """Who may come in, and with how much."""

    def __init__(
        self, lock: Lock, *, hosts: Iterable[str] = (), origins: Iterable[str] = (), max_body: int = 2**25
    ) -> None:
        self.lock = lock
        self.max_body = max_body
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._origins = set(origins)

    def refuse(self, scope: Scope, headers: Headers) -> None:
        """Raise a Refusal for a request that may not come in."""
        self._refuse_strange_host(headers.get("host"))
        if scope["path"] in OPEN:
            return
        if not PAGES.fullmatch(scope["path"]) and not self.lock.opens(headers.get("authorization")):
            refusal = Refusal(401, "invalid_api_key", "the API key is missing or wrong: send Authorization: Bearer KEY")
            refusal.headers["www-authenticate"] = "Bearer"
            raise refusal
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.max_body:
            raise self.too_large()

    def _refuse_strange_host(self, host: str | None) -> None:
        """A page of a stranger can make a browser send requests here under the stranger's name, but not under ours."""
        name = (host or "").rpartition(":")[0] if re.search(r":\d+$", host or "") else host or ""
        name = name.strip("[]").lower()
        if name in self._hosts or "*" in self._hosts or _is_address(name):
            return
        raise Refusal(
            403, "host_not_allowed", f"this server does not go by the name {name!r}; [api] hosts lets it", "host"
        )

    def too_large(self) -> Refusal:
        return Refusal(413, "request_too_large", f"the request is over the limit of {self.max_body:,} bytes")

    def allows(self, origin: str | None) -> bool:
        return origin is not None and (origin in self._origins or "*" in self._origins)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class Gate:
    """The outermost layer. It answers every request with an id, writes one line about it, and never lets a bug out."""

    def __init__(
        self,
        app: ASGIApp,
        rules: Rules,
        *,
        new_id: Callable[[], str],
        monotonic: Callable[[], float],
        count: Callable[[str, int], None],
    ) -> None:
        self._app = app
        self._rules = rules
        self._new_id = new_id
        self._monotonic = monotonic
        self._count = count

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            return
        visit = _Visit(self._rules, scope, receive, send, self._new_id)
        began = self._monotonic()
        try:
            await visit.let_in(self._app)
        finally:
            took = 1000 * (self._monotonic() - began)
            self._count(scope["method"], visit.status)
            path = scope["path"].encode("ascii", "backslashreplace").decode()[:200]
            logger.info("%s %s %s %s %.0f ms", visit.id, scope["method"], path, visit.status or "left", took)


class _Visit:
    """One request on its way through the gate."""

    def __init__(self, rules: Rules, scope: Scope, receive: Receive, send: Send, new_id: Callable[[], str]) -> None:
        self._rules = rules
        self._scope = scope
        self._receive = receive
        self._send = send
        self._headers = Headers(scope=scope)
        self._taken = 0
        self.status = 0
        given = self._headers.get("x-request-id", "")
        self.id = given if SANE_ID.fullmatch(given) else new_id()
        state: MutableMapping[str, Any] = scope.setdefault("state", {})
        state["request_id"] = self.id

    async def let_in(self, app: ASGIApp) -> None:
        try:
            if self._is_preflight():
                await self._answer_preflight()
                return
            self._rules.refuse(self._scope, self._headers)
            await app(self._scope, self.receive, self.send)
        except Refusal as refusal:
            await self._refuse(refusal)
        except HoldfastError as e:
            logger.warning("%s failed: %s", self.id, e)
            await self._refuse(translate(e))
        except asyncio.CancelledError:  # the server stops and waits no longer; what was taken in is safe
            await self._refuse(self._stopped())
            raise
        except ClientDisconnect:
            pass  # in the middle of what it had to say; nobody is there to be told
        except Exception:
            if self.status:  # too late for another answer: the server cuts the connection
                raise
            logger.exception("%s failed in a way nobody thought of", self.id)
            await self._refuse(bug())

    def _stopped(self) -> Refusal:
        """As when a turn cannot be followed to its end: to repeat what may have been taken in is safe only under a key."""
        refusal = Refusal(503, "unavailable", "the server stops; what it has taken in goes on when it is back")
        refusal.headers["x-should-retry"] = str("idempotency-key" in self._headers).lower()
        return refusal

    async def _refuse(self, refusal: Refusal) -> None:
        if not self.status:
            await refusal.response()(self._scope, self._receive, self.send)

    async def receive(self) -> Message:
        message = await self._receive()
        self._taken += len(message.get("body", b""))
        if self._taken > self._rules.max_body:
            raise self._rules.too_large()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self.id
            self._allow_origin(headers)
        await self._send(message)

    def _allow_origin(self, headers: MutableHeaders) -> None:
        origin = self._headers.get("origin")
        if origin is not None and self._rules.allows(origin):
            headers["access-control-allow-origin"] = origin
            headers["access-control-expose-headers"] = EXPOSED
            headers["vary"] = "origin"

    def _is_preflight(self) -> bool:
        asked = self._scope["method"] == "OPTIONS" and "access-control-request-method" in self._headers
        return asked and self._rules.allows(self._headers.get("origin"))

    async def _answer_preflight(self) -> None:
        allowed = self._headers.get("access-control-request-headers", "authorization, content-type")
        headers = [
            (b"access-control-allow-methods", b"GET, POST, PATCH, DELETE"),
            (b"access-control-allow-headers", allowed.encode("latin-1")),
            (b"access-control-max-age", b"600"),
        ]
        await self.send({"type": "http.response.start", "status": 204, "headers": headers})
        await self.send({"type": "http.response.body", "body": b""})
