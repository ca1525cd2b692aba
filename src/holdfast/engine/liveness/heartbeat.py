"""A worker's heartbeat. It runs in a thread, so that a busy event loop is reported as stalled and not declared dead."""

import asyncio
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from holdfast.engine.services import EngineServices
from holdfast.model.errors import Conflict
from holdfast.store.repos import workers
from holdfast.supervisor import Supervisor, encode_statuses


class Heartbeat:
    """Writes heartbeats while open. If the worker was declared dead, it stops and calls `on_death` in the event loop once."""

    def __init__(
        self, services: EngineServices, seconds: float, on_death: Callable[[Conflict], object], supervisor: Supervisor
    ) -> None:
        self._services = services
        self._supervisor = supervisor
        self._report = supervisor.watch("heartbeat", every=seconds)
        self._seconds = seconds
        self._on_death = on_death
        self._loop = asyncio.get_running_loop()
        self._answered = threading.Event()
        self._answered.set()
        self._asked_at = 0
        self._stop = threading.Event()
        self.saved_at = services.clock.monotonic()
        """When the last saved heartbeat began, on the monotonic clock. Other workers have seen no newer one."""
        self._thread = threading.Thread(target=self._beat_on, name="holdfast-beat", daemon=True)

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join)
        self._supervisor.forget(self._report)

    def _beat_on(self) -> None:
        while not self._stop.wait(self._seconds):
            try:
                self.beat()
            except Conflict as e:
                self._loop.call_soon_threadsafe(self._on_death, e)
                return
            except Exception as e:  # noqa: BLE001 - the report logs and shows it; the thread tries the next heartbeat
                self._report.failed(e)
            else:
                self._report.completed()

    def beat(self) -> int:
        """Write one heartbeat, including whether the event loop responded since the last one; returns the counter.

        A loop that is not running, as between the turns of a chat, is not stalled.
        """
        now, began = self._services.clock.now(), self._services.clock.monotonic()
        runs = self._loop.is_running()
        stalled_since = self._asked_at if runs and not self._answered.is_set() else None
        count = self._services.database.write_from_thread(
            workers.record_heartbeat,
            self._services.worker_id,
            at=now,
            stalled_since=stalled_since,
            tasks=encode_statuses(self._supervisor.statuses()),
        )
        self.saved_at = began
        if stalled_since is None:
            self._asked_at = now
        if runs and self._answered.is_set():
            self._answered.clear()
            self._loop.call_soon_threadsafe(self._answered.set)
        return count
