"""Checks every request before anything is parsed: host, key and size. Adds the request id and writes the access log."""

import asyncio
import ipaddress
import logging
import re
from collections.abc import Callable, Iterable, MutableMapping
from functools import lru_cache
from typing import Any

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from holdfast.api.anthropic.errors import error_response
from holdfast.api.errors import ApiError, internal_error, translate
from holdfast.api.transport.auth import KeyCheck, with_bearer_key
from holdfast.api.transport.key_throttle import KeyThrottle
from holdfast.http_connection import INVALID_KEY_MESSAGE
from holdfast.model.errors import HoldfastError

logger = logging.getLogger(__name__)

PUBLIC_PATHS = ("/health",)
"""Paths that need no key."""
DASHBOARD_PATHS = re.compile(r"/(ui(/.*)?|share/.*)?", re.DOTALL)
"""Paths of the dashboard, which authenticates its callers itself."""
SHARE_TOKEN = re.compile(r"(?<=^/share/)[^/]+")
"""The secret part of a link to a session."""
LOGIN_PATH = "/ui/login"
ANTHROPIC_PATHS = re.compile(r"/v1/messages(/.*)?", re.DOTALL)
"""Paths whose errors have Anthropic's format."""
VALID_REQUEST_ID = re.compile(r"[A-Za-z0-9._:-]{1,128}")
EXPOSED_HEADERS = "x-request-id, request-id, x-session-id, x-session-new, x-session-epoch, x-session-seq, x-session-forked-from, x-turn-id"


class AccessRules:
    """Allowed keys, hosts and origins, and the size limit of a body."""

    def __init__(
        self, key_check: KeyCheck, *, hosts: Iterable[str] = (), origins: Iterable[str] = (), max_body: int = 2**25
    ) -> None:
        self.key_check = key_check
        self.max_body = max_body
        self._hosts = {"localhost", *(host.lower() for host in hosts)}
        self._origins = set(origins)

    def check(self, scope: Scope, headers: Headers) -> None:
        """Raise ApiError for a request that is not allowed."""
        self._check_host(headers.get("host"))
        if scope["path"] in PUBLIC_PATHS:
            return
        if not DASHBOARD_PATHS.fullmatch(scope["path"]) and not self.key_check.accepts(headers.get("authorization")):
            raise invalid_key_error()
        length = headers.get("content-length", "0")
        if length.isdecimal() and int(length) > self.max_body:
            raise self.too_large()

    def _check_host(self, host: str | None) -> None:
        """Defend against DNS rebinding: a foreign page can make a browser send requests here under its own host name only."""
        name = (host or "").rpartition(":")[0] if re.search(r":\d+$", host or "") else host or ""
        name = name.strip("[]").lower()
        if name in self._hosts or "*" in self._hosts or _is_address(name):
            return
        raise ApiError(403, "host_not_allowed", f"host {name!r} is not allowed; add it to [api] hosts", "host")

    def too_large(self) -> ApiError:
        return ApiError(413, "request_too_large", f"the request exceeds the limit of {self.max_body:,} bytes")

    def allows_origin(self, origin: str | None) -> bool:
        return origin is not None and (origin in self._origins or "*" in self._origins)


def invalid_key_error() -> ApiError:
    error = ApiError(401, "invalid_api_key", INVALID_KEY_MESSAGE)
    error.headers["www-authenticate"] = "Bearer"
    return error


def too_many_attempts_error(seconds: int) -> ApiError:
    error = ApiError(429, "too_many_attempts", f"too many wrong keys from this address; retry in {seconds} s")
    error.headers["retry-after"] = str(seconds)
    return error


def client_address(scope: Scope) -> str | None:
    """Return the client's address; None on a Unix socket."""
    client = scope.get("client")
    return str(client[0]) if client and client[0] else None


@lru_cache(maxsize=256)
def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


class RequestMiddleware:
    """The outermost layer. Gives every response a request id, logs one line per request, and turns every exception into a response."""

    def __init__(
        self,
        app: ASGIApp,
        rules: AccessRules,
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
        self._attempts = KeyThrottle(monotonic)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] not in ("http", "websocket"):
            return
        scope.setdefault("method", "GET")  # a WebSocket begins with a GET
        request = _RequestScope(self._rules, scope, receive, send, self._new_id, self._attempts)
        began = self._monotonic()
        try:
            await request.handle(self._app)
        finally:
            took = 1000 * (self._monotonic() - began)
            self._count(scope["method"], request.status)
            path = SHARE_TOKEN.sub("***", scope["path"]).encode("ascii", "backslashreplace").decode()[:200]
            about = (
                request.id,
                scope["method"],
                path,
                request.status or "left",
                took,
                request.address or "a local socket",
            )
            logger.info("%s %s %s %s %.0f ms from %s", *about)


class _RequestScope:
    """One request in the middleware."""

    def __init__(
        self,
        rules: AccessRules,
        scope: Scope,
        receive: Receive,
        send: Send,
        new_id: Callable[[], str],
        attempts: KeyThrottle,
    ) -> None:
        self._rules = rules
        self._attempts = attempts
        self.address = client_address(scope)
        scope["headers"] = with_bearer_key(scope["headers"])
        self._is_anthropic = ANTHROPIC_PATHS.fullmatch(scope["path"]) is not None
        self._scope = scope
        self._receive = receive
        self._send = send
        self._headers = Headers(scope=scope)
        self._received = 0
        self.status = 0
        given = self._headers.get("x-request-id", "")
        self.id = given if VALID_REQUEST_ID.fullmatch(given) else new_id()
        state: MutableMapping[str, Any] = scope.setdefault("state", {})
        state["request_id"] = self.id

    async def handle(self, app: ASGIApp) -> None:
        try:
            if self._is_preflight():
                await self._answer_preflight()
                return
            self._check_throttle()
            self._rules.check(self._scope, self._headers)
            self._record_right_key()
            await app(self._scope, self.receive, self.send)
        except ApiError as error:
            await self._send_error(self._record_wrong_key(error))
        except HoldfastError as e:
            logger.warning("%s failed: %s", self.id, e)
            await self._send_error(translate(e))
        except asyncio.CancelledError:  # the server shuts down; what was accepted is durable
            await self._send_error(self._shutdown_error())
            raise
        except ClientDisconnect:
            pass  # the client has disconnected
        except Exception:
            if self.status:  # the response has started: the server closes the connection
                raise
            logger.exception("internal error in request %s", self.id)
            await self._send_error(internal_error(self.id))

    @property
    def _has_key(self) -> bool:
        """Whether the request presents a key, in its header or in the login form."""
        if self._scope["path"] == LOGIN_PATH:
            return bool(self._scope["method"] == "POST")
        scheme, _, given = self._headers.get("authorization", "").partition(" ")
        return scheme.lower() == "bearer" and bool(given.strip())

    def _check_throttle(self) -> None:
        """Raise ApiError for an address that must wait. The login has no exemption: a person can wait."""
        if self.address is None or not self._has_key:
            return
        is_exempt = self._scope["path"] != LOGIN_PATH and self._attempts.is_trusted(self.address)
        if not is_exempt and (seconds := self._attempts.wait(self.address)):
            raise too_many_attempts_error(seconds)

    def _record_right_key(self) -> None:
        if self.address is not None and self._has_key and self._scope["path"] != LOGIN_PATH:
            self._attempts.succeeded(self.address)

    def _record_wrong_key(self, error: ApiError) -> ApiError:
        """Count a wrong key and return the error to send."""
        if error.status != 401 or self.address is None or not self._has_key:
            return error
        if seconds := self._attempts.wait(self.address):
            return too_many_attempts_error(seconds)
        self._attempts.failed(self.address)
        return error

    def _shutdown_error(self) -> ApiError:
        """Describe the shutdown. The request may have been accepted, so a retry is safe only with an idempotency key."""
        error = ApiError(503, "unavailable", "shutting down; accepted requests resume after restart")
        error.headers["x-should-retry"] = str("idempotency-key" in self._headers).lower()
        return error

    async def _send_error(self, error: ApiError) -> None:
        if not self.status:
            response = error_response(error, self.id) if self._is_anthropic else error.response()
            await response(self._scope, self._receive, self.send)

    async def receive(self) -> Message:
        message = await self._receive()
        self._received += len(message.get("body", b""))
        if self._received > self._rules.max_body:
            raise self._rules.too_large()
        return message

    async def send(self, message: Message) -> None:
        if message["type"] == "websocket.accept":
            self.status = 101
            message = {**message, "headers": [*message.get("headers", ()), (b"x-request-id", self.id.encode())]}
        elif message["type"] in ("http.response.start", "websocket.http.response.start"):
            if (
                message["status"] == 401
                and self._scope["path"] == LOGIN_PATH
                and self._has_key
                and self.address is not None
            ):
                self._attempts.failed(self.address)
            self.status = message["status"]
            headers = MutableHeaders(scope=message)
            headers["x-request-id"] = self.id
            if self._is_anthropic:
                headers["request-id"] = self.id
            self._allow_origin(headers)
        await self._send(message)

    # Not Starlette's CORSMiddleware: it answers preflights with 200 and refuses with 400 in plain text, not 204 and 401 in JSON.
    def _allow_origin(self, headers: MutableHeaders) -> None:
        origin = self._headers.get("origin")
        if origin is not None and self._rules.allows_origin(origin):
            headers["access-control-allow-origin"] = origin
            headers["access-control-expose-headers"] = EXPOSED_HEADERS
            headers["vary"] = "origin"

    def _is_preflight(self) -> bool:
        asked = self._scope["method"] == "OPTIONS" and "access-control-request-method" in self._headers
        return asked and self._rules.allows_origin(self._headers.get("origin"))

    async def _answer_preflight(self) -> None:
        allowed = self._headers.get("access-control-request-headers", "authorization, content-type")
        headers = [
            (b"access-control-allow-methods", b"GET, POST, PATCH, DELETE"),
            (b"access-control-allow-headers", allowed.encode("latin-1")),
            (b"access-control-max-age", b"600"),
        ]
        await self.send({"type": "http.response.start", "status": 204, "headers": headers})
        await self.send({"type": "http.response.body", "body": b""})
