"""Stops a worker before others may declare it dead.

A worker that cannot reach the store cannot write, but its tools could still act while another worker declares it dead
and runs the turn again. Others declare it dead when they have seen no new heartbeat for the stale limit. They cannot
have seen a heartbeat that is newer than the last one saved here. So this worker stops all its turns well before the
limit has passed since that heartbeat began, and accepts no work until a heartbeat is saved again. A store that only
this machine can reach needs no fence: there a running process is never declared dead.

It also releases leases that could not be released while the store was unavailable.
"""

import asyncio
import logging
from typing import Protocol

from holdfast.engine.liveness.heartbeat import Heartbeat
from holdfast.model.errors import Unavailable
from holdfast.model.times import Clock
from holdfast.supervisor import Completed, ignore_cycle

log = logging.getLogger(__name__)

CHECK_SECONDS = 1.0
"""How often the fence checks the last heartbeat."""
STOPPING_SECONDS = 15.0
"""How long stopping the turns may take: tools are asked to end, then killed."""


def limit(stale_seconds: float) -> float:
    """The silence after which a worker stops itself, derived from the stale limit of the others."""
    return stale_seconds - min(STOPPING_SECONDS, stale_seconds / 3)


class FencedScheduler(Protocol):
    """What a fence can do; see `Scheduler`."""

    def suspend(self, error: Unavailable) -> None: ...
    def unsuspend(self) -> None: ...
    async def release_owed_leases(self) -> None: ...


class SelfFence:
    """One per worker. No `limit` means that the store is on this machine."""

    def __init__(self, scheduler: FencedScheduler, heartbeat: Heartbeat, limit: float | None, clock: Clock) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._heartbeat = heartbeat
        self._limit = limit
        self.is_fenced = False

    async def watch(self, completed: Completed = ignore_cycle) -> None:
        """Check periodically. Calls nothing external that could fail, so that it never has to be restarted."""
        pause = CHECK_SECONDS if self._limit is None else min(CHECK_SECONDS, self._limit / 20)
        while True:
            self.check()
            completed()
            await asyncio.sleep(pause)

    def check(self) -> None:
        """Stop all turns if no heartbeat was saved for too long; accept work again once one is saved."""
        silent = self._clock.monotonic() - self._heartbeat.saved_at
        too_long = self._limit is not None and silent > self._limit
        if too_long and not self.is_fenced:
            log.error(
                "no heartbeat was saved for %.0f s: other workers may declare this one dead; its turns stop", silent
            )
            self._scheduler.suspend(
                Unavailable(f"this worker has not reached the store for {silent:.0f} s and has stopped its turns")
            )
        elif self.is_fenced and not too_long:
            log.warning("a heartbeat was saved again: this worker accepts work")
            self._scheduler.unsuspend()
        self.is_fenced = too_long

    async def release_leases(self, completed: Completed = ignore_cycle) -> None:
        """Retry releasing leases. Raises every error."""
        while True:
            await asyncio.sleep(CHECK_SECONDS)
            if not self.is_fenced:
                await self._scheduler.release_owed_leases()
            completed()
