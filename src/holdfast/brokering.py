"""Puts the broker together: the same server and gate as the API's, and behind them a worker for each user."""

import asyncio
import resource
import socket
from collections.abc import Mapping

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from holdfast.api import server
from holdfast.api.app import REQUEST
from holdfast.api.auth import Lock
from holdfast.api.gate import Gate, Rules
from holdfast.broker.broker import Broker
from holdfast.broker.counting import Counting
from holdfast.broker.front import STATIC, Front
from holdfast.broker.places import Places
from holdfast.broker.users import Users
from holdfast.clock import SystemClock
from holdfast.config import ENVIRONMENT
from holdfast.dashboard import pages
from holdfast.dashboard.app import HEADERS, static_file, status_of
from holdfast.dashboard.door import Seal
from holdfast.engine.together import all_of, stop
from holdfast.model.errors import HoldfastError
from holdfast.model.ids import Ids
from holdfast.model.times import Clock
from holdfast.serve import Started
from holdfast.settings import Settings

PASSED = {
    *("PATH", "LANG", "LANGUAGE", "TZ", "PYTHONPATH", "SSL_CERT_FILE", "SSL_CERT_DIR", "REQUESTS_CA_BUNDLE"),
    *("HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY", "http_proxy", "https_proxy", "no_proxy"),
    *ENVIRONMENT,
} - {"HOLDFAST_STORE", "HOLDFAST_API_KEY"}
"""Variables that workers get. A user's tools can read them all."""


async def broker(settings: Settings, env: Mapping[str, str], started: Started, stopping: asyncio.Event) -> None:
    """Serve all users until `stopping` is set, then end their workers and leave."""
    places, clock = Places.of(settings), SystemClock()
    users = Users(places.users)
    users.all()
    _raise_limit()
    listener = server.listen(settings.api.host, settings.api.port)
    try:
        async with Broker(places, users, settings.broker, _passed(settings, env), clock) as house:
            house.address = server.address(listener)
            counting = Counting(house, places, settings.broker.user_disk_mb * 2**20, clock.monotonic)
            serving = server.Server(_gate(settings, house, clock), lambda: started(house.address, str(places.users)))
            tending = asyncio.create_task(all_of(house.work(), counting.work()), name="tend")
            try:
                await _until(stopping, house, serving, listener, tending)
            finally:
                await stop(tending)
    finally:
        listener.close()


def _raise_limit() -> None:
    """Each request takes two descriptors, and there are many users."""
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))


def _passed(settings: Settings, env: Mapping[str, str]) -> dict[str, str]:
    names = PASSED | set(settings.broker.environment)
    return {name: value for name, value in env.items() if name in names or name.startswith("LC_")}


def _gate(settings: Settings, house: Broker, clock: Clock) -> ASGIApp:
    api, ids = settings.api, Ids(clock.now)
    rules = Rules(
        UserLock(house.users), hosts=(api.host, *api.hosts), origins=api.cors_origins, max_body=api.max_body_mb * 2**20
    )
    return Gate(
        Front(house, Entrance(clock)),
        rules,
        new_id=lambda: ids.make(REQUEST),
        monotonic=clock.monotonic,
        count=lambda method, status: None,
    )


async def _until(
    stopping: asyncio.Event,
    house: Broker,
    serving: server.Server,
    listener: socket.socket,
    tending: "asyncio.Task[None]",
) -> None:
    """Until somebody wants it to end, or it fails. Nothing more is accepted then, and workers end while their clients listen."""
    task = asyncio.ensure_future(serving.serve([listener]))
    bell = asyncio.ensure_future(stopping.wait())
    try:
        ends: set[asyncio.Future[object]] = {task, bell, tending}  # type: ignore[arg-type] # any result will do
        await asyncio.wait(ends, return_when=asyncio.FIRST_COMPLETED)
        serving.stop()
        await house.leave()
        await task
        if tending.done():
            tending.result()
    finally:
        bell.cancel()
        serving.stop()
        await asyncio.wait({task})


class UserLock(Lock):
    """Opens for the key of any user."""

    def __init__(self, users: Users) -> None:
        super().__init__("")
        self._users = users

    def opens(self, authorization: str | None) -> bool:
        scheme, _, given = (authorization or "").partition(" ")
        return self._users.of_key(given.strip()) is not None and scheme.lower() == "bearer"


class Entrance:
    """The dashboard for those who are not known yet."""

    headers: Mapping[str, str] = HEADERS

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._seals: dict[str, Seal] = {}

    async def static(self, scope: Scope, receive: Receive, send: Send) -> None:
        found: Response = static_file(Request(scope).url.path.removeprefix(STATIC))
        await found(scope, receive, send)

    def login(self, *, wrong: bool, target: str) -> bytes:
        safe = target if target.startswith("/") and not target.startswith(("//", "/\\")) else "/"
        return _drawn("login.html", wrong=wrong, next=safe, hint=False)

    def refusal(self, error: HoldfastError) -> tuple[int, bytes]:
        return status_of(error), _drawn("error.html", what=str(error), code=error.code)

    def cookie(self, key: str) -> str:
        return self._seal(key).cookie

    def is_good(self, key: str, value: str) -> bool:
        return self._seal(key).visit_of(value, self._clock.now()) is not None

    def _seal(self, key: str) -> Seal:
        if key not in self._seals:
            self._seals[key] = Seal(key)
        return self._seals[key]


def _drawn(name: str, **values: object) -> bytes:
    """A page for somebody whom no worker knows yet."""
    common = {"visitor": None, "csrf": "", "path": "/ui/login", "part": False}
    return pages.environment().get_template(name).render(**common, **values).encode("utf-8", "backslashreplace")
