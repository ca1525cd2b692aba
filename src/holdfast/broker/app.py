"""The broker's application: finds the user of a request. Programs send a key; browsers log in with one and then send a cookie.

The worker signs the cookie. The broker can verify it because it knows the keys of all workers. A worker never receives
the cookie of another one, and a request without a valid key or cookie never starts a worker.
"""

from collections.abc import Mapping
from typing import Protocol
from urllib.parse import parse_qs, parse_qsl, quote, urlencode

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Message, Receive, Scope, Send

from holdfast.broker import responses
from holdfast.broker.broker import Broker
from holdfast.broker.proxy import Proxy
from holdfast.broker.users import User
from holdfast.model.errors import DiskFull, HoldfastError, Invalid, Unavailable

MAX_FORM = 64 * 1024
LOGIN_PATH = "/ui/login"
STATIC_PATH = "/ui/static/"


class LoginPages(Protocol):
    """The dashboard pages for visitors who are not logged in."""

    headers: Mapping[str, str]
    """Headers of every page."""

    async def static(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve public images, styles and scripts."""

    def login(self, *, wrong: bool, target: str) -> bytes:
        """Render the login page."""

    def refusal(self, error: HoldfastError) -> tuple[int, bytes]:
        """Render an error page; returns its status and body."""

    def cookie(self, key: str) -> str:
        """Return the cookie name of the worker with that key."""

    def is_good(self, key: str, value: str) -> bool:
        """Return whether the worker with that key signed the cookie and it has not expired."""


class BrokerApp:
    """Runs behind the middleware, which has checked the key except for `/health` and the dashboard's paths."""

    def __init__(self, broker: Broker, pages: LoginPages) -> None:
        self._broker = broker
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        headers = Headers(scope=scope)
        if path == "/health":
            await responses.send_json(send, 200, {"status": "ok"})
        elif path.startswith(STATIC_PATH):
            await self._pages.static(scope, receive, send)
        elif path == LOGIN_PATH:
            await self._login(scope, receive, send, headers)
        elif path in ("/", "/ui") or path.startswith("/ui/"):
            await self._page(scope, receive, send, headers)
        else:
            key = headers.get("authorization", "").partition(" ")[2].strip()
            user = self._broker.users.find_by_key(key)
            if user is None:  # removed since the middleware checked the key
                await responses.send_json(send, 401, responses.INVALID_KEY, [(b"www-authenticate", b"Bearer")])
            else:
                await self._forward(user, scope, receive, send)

    async def _forward(
        self, user: User, scope: Scope, receive: Receive, send: Send, cookie: tuple[str, str] | None = None
    ) -> None:
        tenant = self._broker.tenant(user)
        with tenant.track_request():
            kept = None if cookie is None else f"{cookie[0]}={cookie[1]}".encode("latin-1", "replace")
            await Proxy(tenant, scope, receive, send, kept).run()

    async def _show(
        self, user: User, scope: Scope, receive: Receive, send: Send, cookie: tuple[str, str] | None = None
    ) -> None:
        """Forward as `_forward` does, for a browser: errors become pages."""
        begun = False

        async def sent(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._forward(user, scope, receive, sent, cookie)
        except (DiskFull, Unavailable) as e:
            headers = Headers(scope=scope)
            if begun or "hx-request" in headers or "text/html" not in headers.get("accept", ""):
                raise
            await self._send_page(send, *self._pages.refusal(e))

    async def _page(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        found = self._user_of_cookie(headers)
        if found is not None:
            user, cookie = found
            await self._show(user, scope, receive, send, cookie)
        elif "hx-request" in headers or "text/event-stream" in headers.get("accept", ""):
            await responses.send_response(send, 401, b"", "text/plain", [(b"hx-redirect", LOGIN_PATH.encode())])
        else:
            address = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
            wanted = scope["method"] == "GET" and address != "/"
            await responses.send_redirect(send, LOGIN_PATH + (f"?next={quote(address)}" if wanted else ""))

    def _user_of_cookie(self, headers: Headers) -> tuple[User, tuple[str, str]] | None:
        """Return the user of a valid cookie, and the cookie."""
        given = cookie_parser("; ".join(headers.getlist("cookie")))
        for user in self._broker.users.all().values() if given else ():
            name = self._pages.cookie(user.worker_key)
            if name in given and self._pages.is_good(user.worker_key, given[name]):
                return user, (name, given[name])
        return None

    async def _login(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        """Log in: the typed key identifies the user; the broker sends the worker its own key, and the worker sets the cookie."""
        query = parse_qs(scope["query_string"].decode("latin-1"))
        target = query.get("next", ["/"])[0]
        if scope["method"] != "POST":
            await self._show_login(send, 200, target)
            return
        user = self._broker.users.find_by_key((await _form(receive)).get("key", "").strip())
        if user is None:
            await self._show_login(send, 401, target)
            return
        form = urlencode({"key": user.worker_key}).encode()
        kept = [
            (name, value) for name, value in scope["headers"] if name not in (b"content-length", b"transfer-encoding")
        ]
        changed = {**scope, "headers": [*kept, (b"content-length", str(len(form)).encode())]}
        await self._show(user, changed, _replace_body(form, receive), self._logging_out_others(user, headers, send))

    def _logging_out_others(self, user: User, headers: Headers, send: Send) -> Send:
        """Wrap `send` so that a successful login deletes the cookies of other users in the same browser."""
        given = cookie_parser("; ".join(headers.getlist("cookie")))
        others = [one for one in self._broker.users.all().values() if one.name != user.name]
        names = [name for one in others if (name := self._pages.cookie(one.worker_key)) in given]

        async def sent(message: Message) -> None:
            if message["type"] == "http.response.start" and message["status"] == 303:
                ended = [
                    (b"set-cookie", f"{name}=; Max-Age=0; Path=/; HttpOnly; SameSite=strict".encode()) for name in names
                ]
                message["headers"] = [*message["headers"], *ended]
            await send(message)

        return sent

    async def _show_login(self, send: Send, status: int, target: str) -> None:
        await self._send_page(send, status, self._pages.login(wrong=status != 200, target=target))

    async def _send_page(self, send: Send, status: int, page: bytes) -> None:
        headers = [(name.encode(), value.encode()) for name, value in self._pages.headers.items()]
        await responses.send_response(
            send, status, page, "text/html; charset=utf-8", [*headers, (b"cache-control", b"no-store")]
        )


def _replace_body(body: bytes, receive: Receive) -> Receive:
    """Wrap `receive` to return another body."""
    given = False

    async def changed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return changed


async def _form(receive: Receive) -> dict[str, str]:
    """Parse a form. Raises Invalid."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MAX_FORM:
            raise Invalid(f"the form exceeds the limit of {MAX_FORM:,} bytes")
    try:
        return dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=10))
    except (UnicodeDecodeError, ValueError) as e:
        raise Invalid("the body is not a valid form") from e
