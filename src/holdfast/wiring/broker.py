"""Builds the broker: the server and middleware of the API in front of one worker per user."""

import asyncio
import socket
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast import http_server as server
from holdfast.api.app import REQUEST_ID_PREFIX
from holdfast.api.transport.auth import KeyCheck
from holdfast.api.transport.middleware import AccessRules, RequestMiddleware
from holdfast.broker.app import STATIC_PATH, BrokerApp
from holdfast.broker.broker import Broker
from holdfast.broker.disk_quota import DiskQuota
from holdfast.broker.paths import BrokerPaths
from holdfast.broker.users import Users
from holdfast.clock import BootTime, SystemClock, WatchedClock
from holdfast.config import ENVIRONMENT
from holdfast.dashboard import templating
from holdfast.dashboard.app import HEADERS, static_file, status_of
from holdfast.dashboard.auth import CookieSigner
from holdfast.http_connection import raise_descriptor_limit
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import Ids
from holdfast.model.times import Clock
from holdfast.settings import Settings
from holdfast.supervisor import Supervisor
from holdfast.tasks import running, wait_for_first
from holdfast.wiring.server import Started

PASSED_VARIABLES = {
    *("PATH", "LANG", "LANGUAGE", "TZ", "PYTHONPATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *ENVIRONMENT,
} - {"HOLDFAST_STORE", "HOLDFAST_API_KEY"}
"""Environment variables passed to workers. A user's tools can read them all."""


async def run_broker(settings: Settings, env: Mapping[str, str], started: Started, stopping: asyncio.Event) -> None:
    """Serve all users until `stopping` is set, then stop their workers."""
    paths, clock = BrokerPaths.from_settings(settings), WatchedClock(SystemClock(), BootTime())
    users = Users(paths.users)
    users.all()
    limits = raise_descriptor_limit()
    listener = server.listen(settings.api.host, settings.api.port)
    try:
        async with Broker(paths, users, settings.broker, _passed(settings, env), clock) as broker:
            broker.address = server.listener_address(listener)
            quota = DiskQuota(broker, paths, settings.broker.user_disk_mb * 2**20, clock.monotonic)
            app = _application(settings, broker, clock)
            serving = server.HttpServer(app, lambda: started(broker.address, str(paths.users)), limits)
            tasks = {"users": broker.as_task(), "disk usage": quota.as_task()}
            async with Supervisor(clock) as broker.supervisor, broker.supervisor.running(tasks):
                await _serve_until(stopping, broker, serving, listener)
    finally:
        listener.close()


def _passed(settings: Settings, env: Mapping[str, str]) -> dict[str, str]:
    names = PASSED_VARIABLES | set(settings.broker.environment)
    return {name: value for name, value in env.items() if name in names or name.startswith("LC_")}


def _application(settings: Settings, broker: Broker, clock: Clock) -> ASGIApp:
    api, ids = settings.api, Ids(clock.now)
    rules = AccessRules(
        UserKeyCheck(broker.users),
        hosts=(api.host, *api.hosts),
        origins=api.cors_origins,
        max_body=api.max_body_mb * 2**20,
    )
    return RequestMiddleware(
        BrokerApp(broker, BrokerLoginPages(clock)),
        rules,
        new_id=lambda: ids.make(REQUEST_ID_PREFIX),
        monotonic=clock.monotonic,
        count=lambda method, status: None,
    )


async def _serve_until(
    stopping: asyncio.Event,
    broker: Broker,
    serving: server.HttpServer,
    listener: socket.socket,
) -> None:
    """Serve until stopped or failed. Then stop accepting, and stop the workers while their clients are still connected."""
    async with running(serving.serve([listener]), stopping.wait()) as (task, asked):
        try:
            await wait_for_first(task, asked)
            serving.stop()
            await broker.leave()
            await task
        finally:
            serving.stop()
            await asyncio.wait({task})


class UserKeyCheck(KeyCheck):
    """Accepts the key of any user."""

    def __init__(self, users: Users) -> None:
        super().__init__("")
        self._users = users

    def accepts(self, authorization: str | None) -> bool:
        scheme, _, given = (authorization or "").partition(" ")
        return self._users.find_by_key(given.strip()) is not None and scheme.lower() == "bearer"


class BrokerLoginPages:
    """The dashboard pages for visitors who are not logged in."""

    headers: Mapping[str, str] = HEADERS

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._signers: dict[str, CookieSigner] = {}

    async def static(self, scope: Scope, receive: Receive, send: Send) -> None:
        found: Response = static_file(Request(scope).url.path.removeprefix(STATIC_PATH))
        await found(scope, receive, send)

    def login(self, *, wrong: bool, target: str) -> bytes:
        safe = target if target.startswith("/") and not target.startswith(("//", "/\\")) else "/"
        return _render("login.html", wrong=wrong, next=safe, hint=False)

    def refusal(self, error: HoldfastError) -> tuple[int, bytes]:
        return status_of(error), _render("error.html", message=str(error), code=error.code)

    def cookie(self, key: str) -> str:
        return self._signer(key).cookie

    def is_good(self, key: str, value: str) -> bool:
        return self._signer(key).verify(value, self._clock.now()) is not None

    def _signer(self, key: str) -> CookieSigner:
        if key not in self._signers:
            self._signers[key] = CookieSigner(key)
        return self._signers[key]


def _render(name: str, **values: object) -> bytes:
    """Render a page without a worker."""
    common = {"login": None, "csrf": "", "path": "/ui/login", "part": False}
    return templating.environment().get_template(name).render(**common, **values).encode("utf-8", "backslashreplace")
