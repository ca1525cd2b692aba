"""Keeps a worker from acting on when others may take it for dead.

A worker that is cut off from the store cannot write, but a tool of its turn could go on acting in the world while another
worker has buried it and plays the turn again. Others bury it when they have seen no new beat for the stale limit of their
own clocks. No beat that they saw is younger than the last one that was saved here, so this worker stops all it has in
hand a good while before the limit has passed since it began that beat, and takes no work until a beat is saved again. A
store that only this machine can reach cuts nobody off: there a process that runs is never taken for dead.

It also gives sessions back that could not be given back while the store was away.
"""

import asyncio
import logging

from holdfast.engine.engine import Engine
from holdfast.engine.heartbeat import Heartbeat
from holdfast.engine.together import all_of
from holdfast.model.errors import Unavailable

log = logging.getLogger(__name__)

LOOK_SECONDS = 1.0
"""How often it is looked at."""
STOPPING_SECONDS = 15.0
"""How long it may take to stop what is in hand: tools are asked to end, then killed."""


def limit(stale_seconds: float) -> float:
    """After how long a silence a worker stops by itself, given the one after which others bury it."""
    return stale_seconds - min(STOPPING_SECONDS, stale_seconds / 3)


class Guard:
    """One per worker. Without a `limit` the store cannot be cut off from this worker."""

    def __init__(self, engine: Engine, heartbeat: Heartbeat, limit: float | None) -> None:
        self._engine = engine
        self._heartbeat = heartbeat
        self._limit = limit
        self.is_cut_off = False

    async def work(self) -> None:
        await all_of(self._watch(), self._give_back())

    async def _watch(self) -> None:
        pause = LOOK_SECONDS if self._limit is None else min(LOOK_SECONDS, self._limit / 20)
        while True:
            self.look()
            await asyncio.sleep(pause)

    def look(self) -> None:
        """Stop what is in hand if the store has not heard of us for too long; go on once it has."""
        silent = self._engine.ground.clock.monotonic() - self._heartbeat.saved_at
        too_long = self._limit is not None and silent > self._limit
        if too_long and not self.is_cut_off:
            log.error(
                "no beat was saved for %.0f s: others may take this worker for dead; all it had in hand stops", silent
            )
            self._engine.let_all_go(
                Unavailable(f"this worker has not reached the store for {silent:.0f} s and has stopped its turns")
            )
        elif self.is_cut_off and not too_long:
            log.warning("a beat was saved again: this worker goes on")
            self._engine.go_on()
        self.is_cut_off = too_long

    async def _give_back(self) -> None:
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            if not self.is_cut_off:
                await self._engine.give_back_owed()
