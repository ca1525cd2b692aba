"""Counts what everybody's files take of the disk, over and over, and stops who has too many."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from holdfast.broker import disk
from holdfast.broker.broker import Broker
from holdfast.broker.places import Places
from holdfast.broker.tenant import Tenant
from holdfast.model.errors import HoldfastError, Unavailable

logger = logging.getLogger(__name__)
ROUND_SECONDS = 5.0
SHARE = 0.05
"""Of the time, at most: who has many users or many files is looked at less often."""
LONG = 1.0
"""Seconds of a count that all users wait for. One that takes longer puts off the next of its own user, not everybody's."""


class Counting:
    """Of the users of one broker, each of whom may have `most` bytes."""

    def __init__(self, house: Broker, places: Places, most: int, monotonic: Callable[[], float]) -> None:
        self._house = house
        self._places = places
        self._most = most
        self._monotonic = monotonic
        self._again: dict[str, float] = {}
        """When somebody's files may be counted again."""
        self._failed: dict[str, str] = {}
        """Whose files could not be counted the last time, and why."""

    async def work(self) -> None:
        """One round after the other, until cancelled."""
        while True:
            began, spent = self._monotonic(), 0.0
            try:
                known = self._house.users.all()
                self._again = {name: at for name, at in self._again.items() if name in known}
                left = await asyncio.to_thread(disk.left, {one.uid for one in known.values() if one.uid is not None})
                spent = self._monotonic() - began
                for name in known:
                    spent += await self._count_in_turn(name, left)
            except HoldfastError as e:
                logger.warning("files are counted again in a moment: %s", e)
            await asyncio.sleep(max(ROUND_SECONDS, spent / SHARE))

    async def _count_in_turn(self, name: str, left: Mapping[int, list[bytes]]) -> float:
        """Count for one user, unless their last count was so long that they have to wait; the seconds that it costs everybody."""
        user = self._house.users.all().get(name)  # as it is now: the count of those before may have taken a while
        began = self._monotonic()
        if user is None or began < self._again.get(name, 0.0):
            return 0.0
        await self._count(self._house.tenant(user), left.get(user.uid, []) if user.uid is not None else [])
        ended = self._monotonic()
        self._again[name] = ended + (ended - began) / SHARE
        return min(ended - began, LONG)

    async def _count(self, tenant: Tenant, left: list[bytes]) -> None:
        name = tenant.user.name
        try:
            tenant.disk = await disk.taken([self._places.user(name), self._places.run(name), *left])
        except Unavailable as e:
            if self._failed.get(name) != str(e):
                logger.warning("the files of %s cannot be counted: %s", name, e)
            self._failed[name] = str(e)
            return
        self._failed.pop(name, None)
        if tenant.disk <= self._most:
            tenant.full = ""
            return
        if not tenant.full:
            logger.warning("%s is stopped: their files take %d MB", name, tenant.disk // 2**20)
        tenant.full = (
            f"the files of {name} take {tenant.disk // 2**20:,} MB of the disk, and {self._most // 2**20:,} MB are allowed; "
            "nothing runs until some are deleted, or broker.user_disk_mb is raised, by whoever runs the broker"
        )
        await self._house.end_programs(tenant.user)
