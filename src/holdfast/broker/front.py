"""The broker's application: whose request is it? Programs bring a key; browsers log in with one and bring a cookie from then on.

The cookie is the worker's own. The broker can tell whose it is and whether it is good, because it knows the keys of all workers;
a worker is never shown the cookie of another, and nobody who has neither key nor cookie can wake one.
"""

from collections.abc import Mapping
from typing import Protocol
from urllib.parse import parse_qs, parse_qsl, quote, urlencode

from starlette.datastructures import Headers
from starlette.requests import cookie_parser
from starlette.types import Message, Receive, Scope, Send

from holdfast.broker import answers
from holdfast.broker.broker import Broker
from holdfast.broker.relay import Relay
from holdfast.broker.users import User
from holdfast.model.errors import DiskFull, HoldfastError, Invalid, Unavailable

MAX_FORM = 64 * 1024
LOGIN = "/ui/login"
STATIC = "/ui/static/"


class Pages(Protocol):
    """The dashboard, as far as somebody sees it who is not known yet."""

    headers: Mapping[str, str]
    """Of every page."""

    async def static(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pictures, styles and scripts, which anybody may have."""

    def login(self, *, wrong: bool, target: str) -> bytes:
        """The page that asks for the key."""

    def refusal(self, error: HoldfastError) -> tuple[int, bytes]:
        """The page that says why somebody cannot be served, and its status."""

    def cookie(self, key: str) -> str:
        """The name of the cookie of a worker with that key."""

    def is_good(self, key: str, value: str) -> bool:
        """Whether a cookie was written by a worker with that key, and still counts."""


class Front:
    """Stands behind a gate that has looked at the key, but for the dashboard's paths and `/health`."""

    def __init__(self, broker: Broker, pages: Pages) -> None:
        self._broker = broker
        self._pages = pages

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path: str = scope["path"]
        headers = Headers(scope=scope)
        if path == "/health":
            await answers.send_json(send, 200, {"status": "ok"})
        elif path.startswith(STATIC):
            await self._pages.static(scope, receive, send)
        elif path == LOGIN:
            await self._login(scope, receive, send, headers)
        elif path in ("/", "/ui") or path.startswith("/ui/"):
            await self._page(scope, receive, send, headers)
        else:
            key = headers.get("authorization", "").partition(" ")[2].strip()
            user = self._broker.users.of_key(key)
            assert user is not None, "the gate has looked at the key"
            await self._relay(user, scope, receive, send)

    async def _relay(
        self, user: User, scope: Scope, receive: Receive, send: Send, cookie: tuple[str, str] | None = None
    ) -> None:
        tenant = self._broker.tenant(user)
        with tenant.visit():
            kept = None if cookie is None else f"{cookie[0]}={cookie[1]}".encode("latin-1", "replace")
            await Relay(tenant, scope, receive, send, kept).run()

    async def _show(
        self, user: User, scope: Scope, receive: Receive, send: Send, cookie: tuple[str, str] | None = None
    ) -> None:
        """As `_relay`, for a browser: why it is not served is a page, too."""
        begun = False

        async def sent(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._relay(user, scope, receive, sent, cookie)
        except (DiskFull, Unavailable) as e:
            headers = Headers(scope=scope)
            if begun or "hx-request" in headers or "text/html" not in headers.get("accept", ""):
                raise
            await self._send_page(send, *self._pages.refusal(e))

    async def _page(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        found = self._visitor(headers)
        if found is not None:
            user, cookie = found
            await self._show(user, scope, receive, send, cookie)
        elif "hx-request" in headers or "text/event-stream" in headers.get("accept", ""):
            await answers.send_whole(send, 401, b"", "text/plain", [(b"hx-redirect", LOGIN.encode())])
        else:
            address = scope["path"] + (f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else "")
            wanted = scope["method"] == "GET" and address != "/"
            await answers.send_away(send, LOGIN + (f"?next={quote(address)}" if wanted else ""))

    def _visitor(self, headers: Headers) -> tuple[User, tuple[str, str]] | None:
        """Whose cookie this is, and the cookie."""
        given = cookie_parser("; ".join(headers.getlist("cookie")))
        for user in self._broker.users.all().values() if given else ():
            name = self._pages.cookie(user.worker_key)
            if name in given and self._pages.is_good(user.worker_key, given[name]):
                return user, (name, given[name])
        return None

    async def _login(self, scope: Scope, receive: Receive, send: Send, headers: Headers) -> None:
        """The key that was typed says who it is; their worker is told its own key instead, and gives the cookie."""
        query = parse_qs(scope["query_string"].decode("latin-1"))
        target = query.get("next", ["/"])[0]
        if scope["method"] != "POST":
            await self._show_login(send, 200, target)
            return
        user = self._broker.users.of_key((await _form(receive)).get("key", "").strip())
        if user is None:
            await self._show_login(send, 401, target)
            return
        form = urlencode({"key": user.worker_key}).encode()
        kept = [
            (name, value) for name, value in scope["headers"] if name not in (b"content-length", b"transfer-encoding")
        ]
        changed = {**scope, "headers": [*kept, (b"content-length", str(len(form)).encode())]}
        await self._show(user, changed, _instead(form, receive), self._without_others(user, headers, send))

    def _without_others(self, user: User, headers: Headers, send: Send) -> Send:
        """As `send`, for an answer that lets somebody in: whoever was logged in with the same browser no longer is."""
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
        await answers.send_whole(
            send, status, page, "text/html; charset=utf-8", [*headers, (b"cache-control", b"no-store")]
        )


def _instead(body: bytes, receive: Receive) -> Receive:
    """As `receive`, for a request whose body has been read and is another now."""
    given = False

    async def changed() -> Message:
        nonlocal given
        if given:
            return await receive()
        given = True
        return {"type": "http.request", "body": body, "more_body": False}

    return changed


async def _form(receive: Receive) -> dict[str, str]:
    """The fields of a form. Raises Invalid."""
    body, more = b"", True
    while more:
        message = await receive()
        body += message.get("body", b"")
        more = message.get("more_body", False)
        if len(body) > MAX_FORM:
            raise Invalid(f"a form has at most {MAX_FORM:,} bytes here")
    try:
        return dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=10))
    except (UnicodeDecodeError, ValueError) as e:
        raise Invalid("this is not a form") from e
