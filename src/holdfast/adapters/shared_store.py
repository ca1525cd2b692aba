"""The stores that adapters use: one connection, one writer and one worker per process and URL.

Frameworks call from threads and from several event loops. So each store has an event loop in a thread of its own. Reads
and writes go to the store's threads directly; only opening, waiting for a busy session and background tasks use the loop.
"""

import asyncio
import atexit
import logging
import os
import threading
import time
from collections.abc import Coroutine
from concurrent.futures import Future
from typing import Any, Protocol, TypeVar, cast
from weakref import WeakValueDictionary

import msgspec

import holdfast
from holdfast import config
from holdfast.engine.liveness.heartbeat import Heartbeat
from holdfast.engine.liveness.lease_transactions import CLOSED
from holdfast.engine.liveness.shutdown import Shutdown, record_shutdown
from holdfast.engine.services import EngineServices
from holdfast.engine.streaming.bus import Bus
from holdfast.model.errors import Conflict
from holdfast.model.ids import WORKER
from holdfast.process_lookup import current_identity
from holdfast.settings import Settings
from holdfast.store.database import ThreadedDatabase
from holdfast.store.repos import workers
from holdfast.store.server_clock import READ_SECONDS
from holdfast.supervisor import BackgroundTask, Completed
from holdfast.tasks import submit_to_loop
from holdfast.wiring.store import App, open_app, resolve_store_url

logger = logging.getLogger(__name__)
T = TypeVar("T")
KIND = "adapter"
IDLE_SECONDS = 30.0
"""How long this process keeps a session that it does not use. Another process that writes to it waits that long at most."""
SWEEP_SECONDS = 1.0
CLOSE_SECONDS = 10.0


class KeptSession(Protocol):
    """A session that this process holds; see `FrameworkSession`."""

    channel: str
    used_at: float

    def release(self) -> Future[bool]: ...


class SharedStore:
    """An open store. Get it with `shared_store`; the process closes it when it exits."""

    def __init__(self, settings: Settings) -> None:
        self.opened: Future[App] = Future()
        self.services: EngineServices
        """Set when `opened` is; replaced if this worker was declared dead."""
        self.sessions: WeakValueDictionary[str, Any] = WeakValueDictionary()
        """The sessions that objects of this process use, by channel."""
        self.held: dict[str, KeptSession] = {}
        """The sessions whose lease this process has, by channel."""
        self.lock = threading.Lock()
        self._settings = settings
        self._closing = False
        self._thread = threading.Thread(target=self._run, name="holdfast-adapters", daemon=True)
        self._thread.start()

    @property
    def is_usable(self) -> bool:
        return not self._closing and self._thread.is_alive()

    @property
    def app(self) -> App:
        """The open store. Blocks while it is being opened, which takes some milliseconds."""
        return self.opened.result()

    @property
    def database(self) -> ThreadedDatabase:
        return cast("ThreadedDatabase", self.app.database)

    async def wait_until_open(self) -> None:
        """Wait without blocking the caller's event loop. Raises what prevents it from being opened."""
        if not self.opened.done():
            await asyncio.wrap_future(self.opened)

    def submit(self, work: Coroutine[Any, Any, T]) -> Future[T]:
        """Run the work on the event loop of this store."""
        return submit_to_loop(work, self._loop)

    def leave(self) -> None:
        """Release every session without closing the store: while the program exits, no thread can be started."""
        if self.opened.done() and self.opened.exception() is None and not self._closing:
            self._closing = True
            worker_id, at = self.services.worker_id, self.app.clock.now()
            self.app.database.write_from_thread(record_shutdown, worker_id, f"{CLOSED}: the program ended", at=at)

    def close(self) -> None:
        """Release every session and close the store."""
        self._closing = True
        if self._thread.is_alive() and self.opened.exception() is None:
            self._loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(CLOSE_SECONDS)

    def _run(self) -> None:
        try:
            asyncio.run(self._serve())
        except BaseException as e:
            if self.opened.done():
                raise
            self.opened.set_exception(e)

    async def _serve(self) -> None:
        self._loop, self._stop = asyncio.get_running_loop(), asyncio.Event()
        async with open_app(self._settings) as app:
            tasks = {
                "adapter sessions": BackgroundTask(self._release_idle, SWEEP_SECONDS),
                "clock": BackgroundTask(app.clock.work, READ_SECONDS),  # type: ignore[attr-defined] # both clocks have it
            }
            async with app.supervisor.running(tasks):
                while not self._stop.is_set():
                    await self._work(app)

    async def _work(self, app: App) -> None:
        """Be one worker, until the store is closed or others have declared this worker dead."""
        await self._register(app)
        dead = asyncio.Event()

        def on_death(error: Conflict) -> None:
            logger.error("%s", error)
            dead.set()
            self._stop.set()

        async with Heartbeat(self.services, self._settings.liveness.heartbeat_seconds, on_death, app.supervisor):
            if not self.opened.done():
                self.opened.set_result(app)
            await self._stop.wait()
        if dead.is_set() and not self._closing:
            self._stop.clear()
        else:
            await Shutdown(self.services).record("the program ended")

    async def _register(self, app: App) -> None:
        identity, worker_id = current_identity(), app.ids.make(WORKER)
        services = EngineServices(app.database, app.clock, app.ids, Bus(), worker_id, identity)
        at = app.clock.now()
        await app.database.write(workers.register, worker_id, KIND, identity, version=holdfast.__version__, at=at)
        self.services = services

    async def _release_idle(self, completed: Completed) -> None:
        """Release sessions that are not used, so that other processes need not wait for them."""
        while True:
            await asyncio.sleep(SWEEP_SECONDS)
            before = time.monotonic() - IDLE_SECONDS
            for session in [one for one in list(self.held.values()) if one.used_at < before]:
                await asyncio.wrap_future(session.release())
            completed()


_stores: dict[tuple[int, str], SharedStore] = {}
_lock = threading.Lock()


def shared_store(url: str | None = None) -> SharedStore:
    """The store of this URL, by default that of the home directory, shared by all adapters of this process.

    Does not wait until it is open. Raises Invalid for a malformed URL or setting.
    """
    settings = config.load()
    settings = msgspec.structs.replace(settings, store=resolve_store_url(settings, url))
    key = os.getpid(), settings.store  # a forked process opens the store again
    with _lock:
        found = _stores.get(key)
        if found is None or not found.is_usable:
            found = _stores[key] = SharedStore(settings)
        return found


def close_stores() -> None:
    """Close the stores that adapters of this process have opened. They are opened again at the next use."""
    with _lock:
        ours = [key for key in _stores if key[0] == os.getpid()]
        found = [_stores.pop(key) for key in ours]
    for store in found:
        store.close()


def _leave_stores() -> None:
    for (pid, _), store in list(_stores.items()):
        if pid == os.getpid():
            store.leave()


atexit.register(_leave_stores)
