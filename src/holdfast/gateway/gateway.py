"""All platforms of a worker: each is served by one worker at a time, reconnected when it is lost, and its state kept in the store."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import TYPE_CHECKING

from holdfast.engine.engine import Engine
from holdfast.engine.together import all_of, stop, whole
from holdfast.gateway import rules
from holdfast.gateway.attend import Attendant
from holdfast.gateway.choose import connect
from holdfast.gateway.deliver import Deliverer, Pace
from holdfast.gateway.desk import Desk, Place
from holdfast.gateway.inlet import Intake
from holdfast.gateway.port import Connect, Options, Platform, reason
from holdfast.gateway.router import Router
from holdfast.gateway.rules import Rules
from holdfast.model.errors import HoldfastError, Invalid, Unavailable
from holdfast.settings import Settings
from holdfast.store import outbox, platforms

if TYPE_CHECKING:
    from holdfast.store.search import SearchIndex

logger = logging.getLogger(__name__)
WAIT_SECONDS = 2.0
"""How often a platform is asked for that another worker serves."""
STOP_SECONDS = 2.0
"""How soon a connection is told again to stop."""
RECONNECT = Pace(first=1.0, last=60.0)

Find = Callable[[], Awaitable["SearchIndex"]]


class Link:
    """One platform: take it, connect, serve, and begin again when that ends."""

    def __init__(
        self, engine: Engine, settings: Settings, name: str, open_: Connect, find: Find, pace: Pace = RECONNECT
    ) -> None:
        self._engine = engine
        self._ground = engine.ground
        self._settings = settings
        self._name = name
        self._open = open_
        self._find = find
        self._pace = pace
        given = dict(settings.gateway.platforms.get(name, {}))
        given.pop("kind", None)
        self._options = Options(name, given)
        self._rules: Rules = rules.from_options(self._options)
        self._locks: dict[str, asyncio.Lock] = {}

    async def work(self) -> None:
        """Serve the platform until cancelled: a platform or a store that is away is tried again."""
        failures = 0
        try:
            while True:
                began = self._ground.clock.monotonic()
                try:
                    await self._serve(await self._take())
                    error = "the connection was closed"
                except Invalid as e:
                    logger.warning("%s is not served: %s", self._name, e)
                    await self._note("down", str(e))
                    return
                except Exception as e:
                    error = reason(e)
                    if not isinstance(e, HoldfastError):
                        logger.exception("%s broke", self._name)
                failures = 1 if self._ground.clock.monotonic() - began > self._pace.last else failures + 1
                delay = self._pace.delay(failures)
                logger.warning("%s: %s; connecting again in %.0f s", self._name, error, delay)
                await self._note("down", error)
                await asyncio.sleep(delay)
        finally:
            await self._release()

    async def _take(self) -> str:
        """Become the one that serves the platform; how far it was read."""
        while True:
            at = self._ground.clock.now()
            taken = await self._ground.database.write(platforms.take, self._name, self._ground.worker_id, at=at)
            if taken is not None:
                return taken.position
            await asyncio.sleep(WAIT_SECONDS)

    async def _note(self, state: platforms.Link, error: str) -> None:
        at, me = self._ground.clock.now(), self._ground.worker_id
        try:
            await self._ground.database.write(platforms.note, self._name, me, state, error=error, at=at)
        except HoldfastError as e:
            logger.warning("%s: how it is could not be written down: %s", self._name, e)

    async def _release(self) -> None:
        try:
            await self._ground.database.write(
                platforms.release, self._name, self._ground.worker_id, at=self._ground.clock.now()
            )
        except HoldfastError as e:
            logger.warning("%s could not be left to others: %s", self._name, e)

    async def _serve(self, position: str) -> None:
        async with self._open(self._options, self._ground.clock) as platform:
            self._options.refuse_unknown()
            intake = Intake(self._ground, self._name, platform.read)
            attendant = Attendant(self._ground, self._name, platform, stream=self._rules.stream, lock=self._lock)
            place = Place(self._engine, self._settings, self._name, platform, self._rules)
            desk = Desk(place, find=self._find, attend=attendant.begin)
            router = Router(self._ground, self._name, platform.read, desk)
            deliverer = Deliverer(
                self._ground,
                self._name,
                platform,
                hold=self._rules.hold_unknown,
                files=self._settings.home / "files",
                lock=self._lock,
            )
            try:
                await all_of(
                    _until_lost(platform, intake, position), router.work(), deliverer.work(), self._until_replaced()
                )
            finally:
                await attendant.close()

    async def _until_replaced(self) -> None:
        """One that was declared dead finds that another serves the platform: then it stops."""
        while True:
            await asyncio.sleep(WAIT_SECONDS)
            found = await self._ground.database.read(platforms.get, self._name)
            if found is None or found.worker_id != self._ground.worker_id:
                raise Unavailable("another worker serves the platform")

    def _lock(self, chat: str) -> asyncio.Lock:
        return self._locks.setdefault(chat, asyncio.Lock())


async def _until_lost(platform: Platform, intake: Intake, position: str) -> None:
    receiving = asyncio.ensure_future(platform.receive(intake, position))
    try:
        await asyncio.wait({receiving})
    finally:
        await whole(_silence(receiving))
    receiving.result()
    raise Unavailable("the platform ended the connection")


async def _silence(receiving: "asyncio.Future[None]") -> None:
    """A library that loses being told to stop, as Python 3.11's `wait_for` does, is told again."""
    while not receiving.done():
        receiving.cancel()
        await asyncio.wait({receiving}, timeout=STOP_SECONDS)
    if not receiving.cancelled():
        receiving.exception()  # it is passed on, unless we are stopping


class Gateway:
    def __init__(
        self, engine: Engine, settings: Settings, find: Find, kinds: Mapping[str, Connect] | None = None
    ) -> None:
        self._engine = engine
        self._settings = settings
        _check_home(settings)
        self._links = [
            Link(engine, settings, name, connect(str(given.get("kind", name)), kinds), find)
            for name, given in settings.gateway.platforms.items()
        ]

    async def work(self) -> None:
        """Serve every platform until cancelled. One that fails does not touch the others."""
        tasks = [asyncio.create_task(link.work(), name="gateway") for link in self._links]
        try:
            await asyncio.gather(*tasks)
        finally:
            await stop(*tasks)


def _check_home(settings: Settings) -> None:
    """Raises Invalid for a home channel that nobody could ever be told anything in."""
    home = settings.gateway.home_channel
    if home is None:
        return
    platform = outbox.address_of(home).platform
    if platform not in settings.gateway.platforms:
        raise Invalid(f"[gateway] home_channel: there is no [gateway.{platform}]")
