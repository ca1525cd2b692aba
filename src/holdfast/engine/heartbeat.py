"""The sign of life of a worker, from a thread of its own: an event loop that is busy is reported as stalled, not taken for dead."""

import asyncio
import logging
import threading
from collections.abc import Callable
from types import TracebackType
from typing import Self

from holdfast.engine.hand import Ground
from holdfast.model.errors import Conflict, HoldfastError
from holdfast.store import workers

log = logging.getLogger(__name__)


class Heartbeat:
    """Beats while it is open. If the worker was declared dead it stops and calls `on_death` in the event loop, once."""

    def __init__(self, ground: Ground, seconds: float, on_death: Callable[[Conflict], object]) -> None:
        self._ground = ground
        self._seconds = seconds
        self._on_death = on_death
        self._loop = asyncio.get_running_loop()
        self._answered = threading.Event()
        self._answered.set()
        self._asked_at = 0
        self._stop = threading.Event()
        self.saved_at = ground.clock.monotonic()
        """When the last beat that was saved was begun, on the monotonic clock: others have seen none that is older."""
        self._thread = threading.Thread(target=self._beat_on, name="holdfast-beat", daemon=True)

    async def __aenter__(self) -> Self:
        self._thread.start()
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        await asyncio.to_thread(self._thread.join)

    def _beat_on(self) -> None:
        while not self._stop.wait(self._seconds):
            try:
                self.beat()
            except Conflict as e:
                log.error("%s", e)  # noqa: TRY400 - said to the person; there is no trace worth reading
                self._loop.call_soon_threadsafe(self._on_death, e)
                return
            except HoldfastError as e:
                log.warning("a heartbeat was not saved: %s", e)

    def beat(self) -> int:
        """One beat, with whether the event loop has answered since the last one; the count.

        A loop that is not running, as between the turns of a chat, has nothing to answer and is not stalled.
        """
        now, began = self._ground.clock.now(), self._ground.clock.monotonic()
        runs = self._loop.is_running()
        stalled_since = self._asked_at if runs and not self._answered.is_set() else None
        count = self._ground.database.write_from_thread(
            workers.beat, self._ground.worker_id, at=now, stalled_since=stalled_since
        )
        self.saved_at = began
        if stalled_since is None:
            self._asked_at = now
        if runs and self._answered.is_set():
            self._answered.clear()
            self._loop.call_soon_threadsafe(self._answered.set)
        return count
