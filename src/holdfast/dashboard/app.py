"""The routes of the dashboard, who may use them, and what a browser is told about every page."""

import re
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import resources
from pathlib import Path
from urllib.parse import parse_qsl, quote, urlsplit

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from holdfast.dashboard import deeds, health, listing, live, machines, mail, pages, session, space, times
from holdfast.dashboard.desk import Desk
from holdfast.dashboard.door import FIELD, HEADER, VISIT, Door, Visitor, is_from_elsewhere
from holdfast.model.errors import Conflict, HoldfastError, Invalid, NotFound, NotSaved, Unavailable

Handler = Callable[[Request], Awaitable[Response]]
STATUS: tuple[tuple[type[HoldfastError], int], ...] = (
    (NotFound, 404),
    (Invalid, 400),
    (Conflict, 409),
    (NotSaved, 507),
    (Unavailable, 503),
    (HoldfastError, 500),
)
"""The first kind that fits decides."""
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
TYPES = {".js": "text/javascript", ".css": "text/css", ".woff2": "font/woff2", ".svg": "image/svg+xml"}
MAX_FORM = 2**20
INSIDE = re.compile(r"/(\?.*|ui/(?!login\b|logout\b).*)?")
"""Where one may be led after a login: pages, and never elsewhere."""

GETS: list[tuple[str, Handler]] = [
    ("/", listing.sessions),
    ("/ui/census", listing.counts),
    ("/ui/live", live.stream),
    ("/ui/s/{id}", session.show),
    ("/ui/s/{id}/older", session.older),
    ("/ui/s/{id}/why", session.why),
    ("/ui/s/{id}/raw/{seq:int}", session.raw),
    ("/ui/s/{id}/image/{seq:int}/{number:int}", session.image),
    ("/ui/s/{id}/export", session.export),
    ("/ui/space", space.show),
    ("/ui/space/data", space.data),
    ("/ui/space/day", space.day),
    ("/ui/processes", machines.processes),
    ("/ui/processes/{id}", machines.output),
    ("/ui/workers", machines.workers),
    ("/ui/gateways", mail.gateways),
    ("/ui/dead", mail.dead),
    ("/ui/cron", times.cron),
    ("/ui/health", health.show),
    ("/ui/health/charts", health.charts),
    ("/ui/fleet", machines.fleet),
]
POSTS: list[tuple[str, Handler]] = [
    ("/ui/new", deeds.begin),
    ("/ui/s/{id}/{deed:str}", deeds.do),
    ("/ui/processes/{id}/stop", machines.stop),
    ("/ui/workers/sweep", machines.sweep),
    ("/ui/gateways/pair", mail.pair),
    ("/ui/gateways/unpair", mail.unpair),
    ("/ui/dead/replay", mail.replay),
    ("/ui/cron/add", times.add),
    ("/ui/cron/{id}/run", times.run),
    ("/ui/cron/{id}/remove", times.remove),
]


class Dashboard:
    """The pages as one application. What they cannot name escapes: whoever stands before them answers it."""

    def __init__(self, desk: Desk, door: Door) -> None:
        self.state = desk
        self._door = door
        routes = [Route(path, handler, methods=["GET"]) for path, handler in GETS]
        routes += [Route(path, handler, methods=["POST"]) for path, handler in POSTS]
        self._router = Router(routes, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        request = Request(scope, receive)

        started = False

        async def protected(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                headers.update(HEADERS)
                headers.setdefault("cache-control", "no-store")
            await send(message)

        try:
            answer = await self._answer(request)
            await (answer or self._router)(scope, receive, protected)
        except (HoldfastError, HTTPException) as e:
            if started:  # too late for another answer: the connection is cut, and the page tries again
                raise
            failed = self._failed(request, e) if isinstance(e, HoldfastError) else _nothing(request, e)
            await failed(scope, receive, protected)

    async def _answer(self, request: Request) -> Response | None:
        """What is answered at the door; None for one who may go in."""
        path = request.url.path
        if path.startswith("/ui/static/"):
            return static_file(path.removeprefix("/ui/static/"))
        visitor = await self._door.visitor(request.cookies, self.state.now)
        request.scope["holdfast.visitor"] = visitor
        if path == "/ui/login":
            return await self._login(request)
        if visitor is None:
            return _turned_away(request)
        request.scope["holdfast.lasts"] = partial(self._lasts, visitor)
        if request.method == "POST":
            form = await _form(request)
            token = request.headers.get(HEADER) or form.get(FIELD, "")
            if is_from_elsewhere(request.headers) or not self._door.allows(visitor, token):
                return pages.page(
                    request, "error.html", status=403, what="This form is not from here, or too old.", code="csrf"
                )
            request.scope["holdfast.form"] = form
            if path == "/ui/logout":
                await self._door.leave(visitor, self.state.now)
                away = RedirectResponse("/ui/login", 303)
                away.delete_cookie(self._door.cookie, path="/", httponly=True, samesite="strict")
                away.headers["clear-site-data"] = '"cache"'
                return away
        return None

    async def _lasts(self, visitor: Visitor) -> bool:
        return await self._door.lasts(visitor, self.state.now)

    async def _login(self, request: Request) -> Response:
        target = request.query_params.get("next", "/")
        target = target if INSIDE.fullmatch(target) else "/"
        if request.method in ("GET", "HEAD"):
            if pages.visitor_of(request) is not None:
                return RedirectResponse(target, 303)
            return pages.page(request, "login.html", wrong=False, next=target)
        if request.method != "POST":
            raise HTTPException(405)
        form = await _form(request)
        if is_from_elsewhere(request.headers) or not self._door.opens(form.get("key", "")):
            return pages.page(request, "login.html", status=401, wrong=True, next=target)
        answer = RedirectResponse(target, 303)
        answer.set_cookie(
            self._door.cookie,
            self._door.admit(self.state.now),
            max_age=VISIT // 1_000_000,
            path="/",
            secure=_is_private(request),
            httponly=True,
            samesite="strict",
        )
        return answer

    def _failed(self, request: Request, error: HoldfastError) -> Response:
        status = status_of(error)
        if "hx-request" in request.headers:
            answer = pages.piece(request, "notice.html", status=status, words=str(error), bad=True)
            answer.headers["hx-retarget"] = "#notices"
            answer.headers["hx-reswap"] = "beforeend"
            return answer
        return pages.page(request, "error.html", status=status, what=str(error), code=error.code)


def status_of(error: HoldfastError) -> int:
    return next(status for kind, status in STATUS if isinstance(error, kind))


def static_file(name: str) -> Response:
    """A file that comes with the package. It names its release, so that a browser may keep it."""
    path = Path(str(resources.files("holdfast.dashboard"))) / "static" / name
    if "/" in name or path.suffix not in TYPES or not path.is_file():
        return Response("there is no such file", 404)
    headers = {"cache-control": "public, max-age=3600"}
    return Response(path.read_bytes(), headers=headers, media_type=TYPES[path.suffix])


def _is_private(request: Request) -> bool:
    """Whether the browser came by HTTPS: to us, or, as it says itself, to a proxy before us."""
    return "https" in (request.url.scheme, urlsplit(request.headers.get("origin", "")).scheme)


def _nothing(request: Request, error: HTTPException) -> Response:
    return pages.page(request, "error.html", status=error.status_code, what="There is nothing here.", code="")


def _turned_away(request: Request) -> Response:
    """To the door, from wherever one wanted to go."""
    address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    login = "/ui/login" + (f"?next={quote(address)}" if request.method == "GET" and address != "/" else "")
    if "hx-request" in request.headers or "text/event-stream" in request.headers.get("accept", ""):
        return Response(status_code=401, headers={"hx-redirect": "/ui/login"})
    return RedirectResponse(login, 303)


async def _form(request: Request) -> dict[str, str]:
    """The fields of a form. Raises Invalid for something else, or for too much."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_FORM:
            raise Invalid(f"a form has at most {MAX_FORM:,} bytes")
    try:
        return dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=100))
    except (UnicodeDecodeError, ValueError) as e:
        raise Invalid("this is not a form") from e
