"""The dashboard as an ASGI application: routes, authentication and security headers."""

import re
from collections.abc import Awaitable, Callable
from functools import partial
from importlib import resources
from pathlib import Path
from urllib.parse import parse_qsl, quote

from starlette.convertors import IntegerConvertor, register_url_convertor
from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.routing import Route, Router
from starlette.types import Message, Receive, Scope, Send

from holdfast.dashboard import (
    actions,
    bulk,
    gateways,
    health,
    live,
    memory,
    questions,
    runtime,
    schedules,
    session,
    sessions,
    sharing,
    space,
    templating,
    usage,
)
from holdfast.dashboard.auth import (
    CSRF_FIELD,
    CSRF_HEADER,
    LOGIN_LIFETIME,
    BrowserLogin,
    LoginAuth,
    is_cross_site,
    is_https,
)
from holdfast.dashboard.context import DashboardContext
from holdfast.interop.pages import rendering
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
"""HTTP statuses of errors; the first matching class decides."""
CONTENT_SECURITY_POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self'; font-src 'self'; connect-src 'self'; "
    "form-action 'self'; base-uri 'none'; frame-ancestors 'none'"
)
HEADERS = {
    "content-security-policy": CONTENT_SECURITY_POLICY,
    "x-content-type-options": "nosniff",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "cache-control": "no-store",
    "permissions-policy": "camera=(), microphone=(), geolocation=()",
}
MEDIA_TYPES = {".js": "text/javascript", ".css": "text/css", ".woff2": "font/woff2", ".svg": "image/svg+xml"}
MAX_FORM_BYTES = 2**20
MAX_FIELDS = 600
"""More than the sessions that can be selected in the list."""
LOGIN_TARGETS = re.compile(r"/(\?.*|ui/(?!login\b|logout\b).*)?")
"""Where a login may redirect to: pages of the dashboard only."""


class CountConvertor(IntegerConvertor):
    """A whole number of a URL that the store can hold; a longer one is no page."""

    regex = "[0-9]{1,15}"


register_url_convertor("count", CountConvertor())

GET_ROUTES: list[tuple[str, Handler]] = [
    ("/", sessions.show_sessions),
    ("/ui/census", sessions.show_counts),
    ("/ui/models", sessions.show_models),
    ("/ui/live", live.stream_updates),
    ("/ui/s/{id}", session.show_session),
    ("/ui/s/{id}/older", session.show_older),
    ("/ui/s/{id}/why", session.explain_session),
    ("/ui/s/{id}/raw/{seq:count}", session.send_raw),
    ("/ui/s/{id}/image/{seq:count}/{number:count}", session.send_image),
    ("/ui/s/{id}/export", session.export_session),
    ("/ui/s/{id}/shares", sharing.show_links),
    ("/ui/space", space.show_space),
    ("/ui/space/data", space.send_sessions),
    ("/ui/space/day", space.send_day),
    ("/ui/questions", questions.show_questions),
    ("/ui/questions/count", questions.send_count),
    ("/ui/processes", runtime.show_processes),
    ("/ui/processes/{id}", runtime.show_output),
    ("/ui/workers", runtime.show_workers),
    ("/ui/gateways", gateways.show_gateways),
    ("/ui/dead", gateways.show_dead_letters),
    ("/ui/cron", schedules.show_schedules),
    ("/ui/memory", memory.show_memory),
    ("/ui/health", health.show_health),
    ("/ui/health/charts", health.send_charts),
    ("/ui/usage", usage.show_usage),
    ("/ui/usage.csv", usage.send_csv),
    ("/ui/fleet", runtime.show_fleet),
]
PUBLIC_ROUTES: list[tuple[str, Handler]] = [
    ("/share/{token}", sharing.show_shared),
    ("/share/{token}/image/{seq:count}/{number:count}", sharing.send_shared_image),
]
"""Routes that need no login; the token of the link is the permission."""
POST_ROUTES: list[tuple[str, Handler]] = [
    ("/ui/new", actions.start_session),
    ("/ui/bulk", bulk.run_bulk),
    ("/ui/s/{id}/share", sharing.share),
    ("/ui/shares/revoke", sharing.revoke),
    ("/ui/s/{id}/{action:str}", actions.run_action),
    ("/ui/processes/{id}/stop", runtime.stop_process),
    ("/ui/workers/sweep", runtime.sweep_workers),
    ("/ui/gateways/pair", gateways.pair),
    ("/ui/gateways/unpair", gateways.unpair),
    ("/ui/dead/replay", gateways.replay),
    ("/ui/dead/dismiss", gateways.dismiss),
    ("/ui/memory/add", memory.add_fact),
    ("/ui/memory/{id}/correct", memory.correct_fact),
    ("/ui/memory/{id}/forget", memory.forget_fact),
    ("/ui/cron/add", schedules.add_schedule),
    ("/ui/cron/{id}/run", schedules.run_schedule),
    ("/ui/cron/{id}/remove", schedules.remove_schedule),
]


class Dashboard:
    """All pages as one application. Errors other than HoldfastError escape to the caller."""

    def __init__(self, context: DashboardContext, auth: LoginAuth) -> None:
        self.state = context
        self._auth = auth
        routes = [Route(path, handler, methods=["GET"]) for path, handler in GET_ROUTES]
        routes += [Route(path, handler, methods=["POST"]) for path, handler in POST_ROUTES]
        self._router = Router(routes, redirect_slashes=False)
        public = [Route(path, handler, methods=["GET"]) for path, handler in PUBLIC_ROUTES]
        self._public = Router(public, redirect_slashes=False)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        scope["app"] = self
        request = Request(scope, receive)

        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers.setdefault(name, value)
            await send(message)

        try:
            if request.url.path.startswith("/share/"):
                await self._show_shared(scope, receive, send_with_headers)
                return
            response = await self._handle_outside_pages(request)
            await (response or self._router)(scope, receive, send_with_headers)
        except (HoldfastError, HTTPException) as e:
            if started:  # too late for another response: the connection is closed, and the page retries
                raise
            failed = self._error_response(request, e) if isinstance(e, HoldfastError) else _not_found_page(request, e)
            await failed(scope, receive, send_with_headers)

    async def _handle_outside_pages(self, request: Request) -> Response | None:
        """Handle static files, login, logout and rejections. Returns None if the request may proceed to its page."""
        path = request.url.path
        if path.startswith("/ui/static/"):
            return static_file(path.removeprefix("/ui/static/"))
        login = await self._auth.authenticate(request.cookies, self.state.now)
        request.scope["holdfast.login"] = login
        if path == "/ui/login":
            return await self._login(request)
        if login is None:
            return _redirect_to_login(request)
        request.scope["holdfast.is_active"] = partial(self._is_active, login)
        if request.method == "POST":
            form = await _read_form(request)
            token = request.headers.get(CSRF_HEADER) or form.get(CSRF_FIELD, "")
            if is_cross_site(request.headers) or not self._auth.is_valid_token(login, token):
                return templating.page_response(
                    request,
                    "error.html",
                    status=403,
                    message="Invalid or expired form. Reload the page and try again.",
                    code="csrf",
                )
            request.scope["holdfast.form"] = form
            if path == "/ui/logout":
                await self._auth.log_out(login, self.state.now)
                response = RedirectResponse("/ui/login", 303)
                response.delete_cookie(self._auth.cookie, path="/", httponly=True, samesite="strict")
                response.headers["clear-site-data"] = '"cache"'
                return response
        return None

    async def _show_shared(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Every failure looks the same: a visitor learns nothing about links and sessions."""
        try:
            await self._public(scope, receive, send)
        except (NotFound, Invalid, HTTPException):
            await sharing.refuse_shared()(scope, receive, send)

    async def _is_active(self, login: BrowserLogin) -> bool:
        return await self._auth.is_active(login, self.state.now)

    async def _login(self, request: Request) -> Response:
        target = request.query_params.get("next", "/")
        target = target if LOGIN_TARGETS.fullmatch(target) else "/"
        if request.method in ("GET", "HEAD"):
            if templating.get_login(request) is not None:
                return RedirectResponse(target, 303)
            return templating.page_response(request, "login.html", wrong=False, next=target)
        if request.method != "POST":
            raise HTTPException(405)
        form = await _read_form(request)
        if is_cross_site(request.headers) or not self._auth.is_valid_key(form.get("key", "")):
            return templating.page_response(request, "login.html", status=401, wrong=True, next=target)
        response = RedirectResponse(target, 303)
        response.set_cookie(
            self._auth.cookie,
            self._auth.issue_cookie(self.state.now),
            max_age=LOGIN_LIFETIME // 1_000_000,
            path="/",
            secure=is_https(request),
            httponly=True,
            samesite="strict",
        )
        return response

    def _error_response(self, request: Request, error: HoldfastError) -> Response:
        status = status_of(error)
        if "hx-request" in request.headers:
            response = templating.fragment_response(request, "notice.html", status=status, text=str(error), bad=True)
            response.headers["hx-retarget"] = "#notices"
            response.headers["hx-reswap"] = "beforeend"
            return response
        return templating.page_response(request, "error.html", status=status, message=str(error), code=error.code)


def status_of(error: HoldfastError) -> int:
    return next(status for kind, status in STATUS if isinstance(error, kind))


def static_file(name: str) -> Response:
    """A file of the package. Its URL contains the version, so that browsers may cache it."""
    folder = Path(str(resources.files("holdfast.dashboard"))) / "static"
    path = (rendering.folder() if name == rendering.STYLESHEET else folder) / name
    if "/" in name or path.suffix not in MEDIA_TYPES or not path.is_file():
        return Response("file not found", 404)
    headers = {"cache-control": "public, max-age=3600"}
    return Response(path.read_bytes(), headers=headers, media_type=MEDIA_TYPES[path.suffix])


def _not_found_page(request: Request, error: HTTPException) -> Response:
    return templating.page_response(request, "error.html", status=error.status_code, message="Page not found.", code="")


def _redirect_to_login(request: Request) -> Response:
    """Redirect to the login page, and back afterwards."""
    address = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    login = "/ui/login" + (f"?next={quote(address)}" if request.method == "GET" and address != "/" else "")
    if "hx-request" in request.headers or "text/event-stream" in request.headers.get("accept", ""):
        return Response(status_code=401, headers={"hx-redirect": "/ui/login"})
    return RedirectResponse(login, 303)


async def _read_form(request: Request) -> dict[str, str]:
    """Read the form fields of the body. Raises Invalid if it is malformed or too large."""
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MAX_FORM_BYTES:
            raise Invalid(f"a form may have at most {MAX_FORM_BYTES:,} bytes")
    try:
        return dict(parse_qsl(body.decode("utf-8"), keep_blank_values=True, max_num_fields=MAX_FIELDS))
    except (UnicodeDecodeError, ValueError) as e:
        raise Invalid("malformed form") from e
