"""Runs the platforms of a worker. One worker at a time serves a platform, reconnects it, and keeps its state in the store."""

import asyncio
import logging
from collections.abc import Mapping

from holdfast.engine.engine import Engine
from holdfast.gateway import policy
from holdfast.gateway.command_context import OpenIndex
from holdfast.gateway.delivery import Deliverer, RetrySchedule
from holdfast.gateway.inbox_worker import InboxWorker
from holdfast.gateway.intake import Intake
from holdfast.gateway.live_preview import LivePreview
from holdfast.gateway.message_handler import HandlerServices, MessageHandler
from holdfast.gateway.platforms.registry import connect
from holdfast.gateway.policy import PlatformRules
from holdfast.gateway.port import PLATFORMS, Connect, Platform, PlatformOptions, describe_error
from holdfast.gateway.voice import Transcriber
from holdfast.model.errors import HoldfastError, Invalid, Unavailable
from holdfast.settings import Settings
from holdfast.store.repos import outbox, platforms
from holdfast.supervisor import BackgroundTask, Completed, Finished, ignore_cycle
from holdfast.tasks import run_all, run_to_completion, running

logger = logging.getLogger(__name__)
POLL_SECONDS = 2.0
"""How often a worker tries to take over a platform that another worker serves."""
CANCEL_SECONDS = 2.0
"""How long to wait before a connection is cancelled again."""
RECONNECT = RetrySchedule(first=1.0, last=60.0)


class PlatformConnection:
    """Serves one platform: acquires it, connects, and reconnects when the connection ends."""

    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        name: str,
        open_: Connect,
        open_index: OpenIndex,
        transcriber: Transcriber | None = None,
        retry: RetrySchedule = RECONNECT,
    ) -> None:
        self._engine = engine
        self._services = engine.services
        self._settings = settings
        self.name = name
        self._open = open_
        self._open_index = open_index
        self._retry = retry
        self._transcriber = transcriber
        options = dict(settings.gateway.platforms.get(name, {}))
        options.pop("kind", None)
        self._options = PlatformOptions(name, options, settings.home / PLATFORMS / name)
        self._rules: PlatformRules = policy.from_options(self._options)
        self._locks: dict[str, asyncio.Lock] = {}

    def as_task(self) -> BackgroundTask:
        """The longest time without progress is the delay before a reconnect."""
        return BackgroundTask(self.work, self._retry.last)

    async def work(self, completed: Completed = ignore_cycle) -> None:
        """Serve the platform until cancelled; retry while the platform or the store is unavailable.

        Raises Finished if its settings are invalid. An unavailable platform is not a failure of this task.
        """
        failures = 0
        try:
            while True:
                began = self._services.clock.monotonic()
                try:
                    completed()
                    await self._serve(await self._acquire(completed), completed)
                    error = "connection closed"
                except Invalid as e:
                    logger.warning("%s: not started: %s", self.name, e)
                    await self._record_state("down", str(e))
                    raise Finished(str(e)) from e
                except Exception as e:
                    error = describe_error(e)
                    if not isinstance(e, HoldfastError):
                        logger.exception("%s failed", self.name)
                failures = 1 if self._services.clock.monotonic() - began > self._retry.last else failures + 1
                delay = self._retry.delay(failures)
                logger.warning("%s: %s; reconnecting in %.0f s", self.name, error, delay)
                await self._record_state("down", error)
                completed()
                await asyncio.sleep(delay)
        finally:
            await self._release()

    async def _acquire(self, completed: Completed) -> str:
        """Wait until this worker serves the platform; return the read position."""
        while True:
            at = self._services.clock.now()
            taken = await self._services.database.write(platforms.take, self.name, self._services.worker_id, at=at)
            if taken is not None:
                return taken.position
            completed()
            await asyncio.sleep(POLL_SECONDS)

    async def _record_state(self, state: platforms.LinkState, error: str) -> None:
        at, me = self._services.clock.now(), self._services.worker_id
        try:
            await self._services.database.write(platforms.record_state, self.name, me, state, error=error, at=at)
        except HoldfastError as e:
            logger.warning("%s: cannot record its state: %s", self.name, e)

    async def _release(self) -> None:
        try:
            await self._services.database.write(
                platforms.release, self.name, self._services.worker_id, at=self._services.clock.now()
            )
        except HoldfastError as e:
            logger.warning("%s: cannot release the platform: %s", self.name, e)

    async def _serve(self, position: str, completed: Completed) -> None:
        async with self._open(self._options, self._services.clock) as platform:
            self._options.refuse_unknown()
            intake = Intake(self._services, self.name, platform.read)
            preview = LivePreview(self._services, self.name, platform, stream=self._rules.stream, lock=self._lock)
            services = HandlerServices(
                self._engine, self._settings, self.name, platform, self._rules, self._transcriber
            )
            handler = MessageHandler(services, open_index=self._open_index, on_turn_started=preview.start)
            inbox_worker = InboxWorker(self._services, self.name, platform.read, handler)
            deliverer = Deliverer(
                self._services,
                self.name,
                platform,
                hold=self._rules.hold_unknown,
                files=self._settings.home / "files",
                lock=self._lock,
                home=self._settings.gateway.home_channel,
            )
            try:
                tasks = {f"inbox {self.name}": inbox_worker.as_task(), f"outbox {self.name}": deliverer.as_task()}
                async with self._engine.supervisor.running(tasks):
                    await run_all(_receive_until_lost(platform, intake, position), self._watch_ownership(completed))
            finally:
                await preview.close()

    async def _watch_ownership(self, completed: Completed) -> None:
        """Raise Unavailable once another worker serves the platform, because this one was declared dead."""
        while True:
            await asyncio.sleep(POLL_SECONDS)
            found = await self._services.database.read(platforms.get, self.name)
            if found is None or found.worker_id != self._services.worker_id:
                raise Unavailable("another worker now serves the platform")
            completed()

    def _lock(self, chat: str) -> asyncio.Lock:
        return self._locks.setdefault(chat, asyncio.Lock())


async def _receive_until_lost(platform: Platform, intake: Intake, position: str) -> None:
    async with running(platform.receive(intake, position)) as (receiving,):
        try:
            await asyncio.wait({receiving})
        finally:
            await run_to_completion(_cancel_until_done(receiving))
    receiving.result()
    raise Unavailable("the platform closed the connection")


async def _cancel_until_done(receiving: "asyncio.Future[None]") -> None:
    """Cancel again if a library loses the cancellation, as `wait_for` of Python 3.11 does."""
    while not receiving.done():
        receiving.cancel()
        await asyncio.wait({receiving}, timeout=CANCEL_SECONDS)
    if not receiving.cancelled():
        receiving.exception()  # mark it as retrieved; the caller raises it unless we are stopping


class Gateway:
    def __init__(
        self,
        engine: Engine,
        settings: Settings,
        open_index: OpenIndex,
        kinds: Mapping[str, Connect] | None = None,
        transcriber: Transcriber | None = None,
    ) -> None:
        _check_home_channel(settings)
        self._connections = [
            PlatformConnection(
                engine, settings, name, connect(str(given.get("kind", name)), kinds), open_index, transcriber
            )
            for name, given in settings.gateway.platforms.items()
        ]

    def tasks(self) -> dict[str, BackgroundTask]:
        """One task per platform. A failure of one does not affect the others."""
        return {f"gateway {link.name}": link.as_task() for link in self._connections}


def _check_home_channel(settings: Settings) -> None:
    """Raise Invalid if the platform of the home channel is not configured."""
    home = settings.gateway.home_channel
    if home is None:
        return
    platform = outbox.parse_channel(home).platform
    if platform not in settings.gateway.platforms:
        raise Invalid(f"[gateway] home_channel: [gateway.{platform}] is not configured")
