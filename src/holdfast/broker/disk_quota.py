"""Measures the disk usage of all users periodically and stops those above their quota."""

import asyncio
import logging
from collections.abc import Callable, Mapping

from holdfast.broker import disk_usage
from holdfast.broker.broker import Broker
from holdfast.broker.paths import BrokerPaths
from holdfast.broker.tenant import Tenant
from holdfast.model.errors import Unavailable
from holdfast.supervisor import IDLE_SECONDS, BackgroundTask, Completed, ignore_cycle

logger = logging.getLogger(__name__)
ROUND_SECONDS = 5.0
TIME_SHARE = 0.05
"""Share of time spent counting: more users or files are counted less often."""
COUNT_SECONDS = 300.0
"""Seconds until a slow count marks the task as down: `du` has one minute, and killing processes may take another."""
SHARED_SECONDS = 1.0
"""Seconds of a count charged to all users. A longer count delays only the next count of the same user."""


class DiskQuota:
    """Enforces the quota of `limit` bytes per user."""

    def __init__(self, broker: Broker, paths: BrokerPaths, limit: int, monotonic: Callable[[], float]) -> None:
        self._broker = broker
        self._paths = paths
        self._limit = limit
        self._monotonic = monotonic
        self._again: dict[str, float] = {}
        """When a user's files may be counted again."""
        self._failed: dict[str, str] = {}
        """Users whose last count failed, and why."""

    def as_task(self) -> BackgroundTask:
        return BackgroundTask(self.work, IDLE_SECONDS, COUNT_SECONDS)

    async def work(self, completed: Completed = ignore_cycle) -> None:
        """Count in rounds until cancelled. Raises on failure."""
        while True:
            began = self._monotonic()
            known = self._broker.users.all()
            self._again = {name: at for name, at in self._again.items() if name in known}
            left = await asyncio.to_thread(
                disk_usage.find_shared_files, {one.uid for one in known.values() if one.uid is not None}
            )
            spent = self._monotonic() - began
            for name in known:
                spent += await self._count_user(name, left, completed)
            await self._pause(max(ROUND_SECONDS, spent / TIME_SHARE), completed)

    async def _pause(self, seconds: float, completed: Completed) -> None:
        """Wait for the next round and report progress, because with many users that takes long."""
        while seconds > 0:
            completed()
            await asyncio.sleep(min(seconds, IDLE_SECONDS))
            seconds -= IDLE_SECONDS

    async def _count_user(self, name: str, left: Mapping[int, list[bytes]], completed: Completed) -> float:
        """Count for one user unless their last count was too recent for its duration; return the seconds charged to all."""
        user = self._broker.users.all().get(name)  # reload: earlier counts may have taken a while
        began = self._monotonic()
        if user is None or began < self._again.get(name, 0.0):
            return 0.0
        await self._count(self._broker.tenant(user), left.get(user.uid, []) if user.uid is not None else [])
        completed()  # after each user: with many users a round takes very long
        ended = self._monotonic()
        self._again[name] = ended + (ended - began) / TIME_SHARE
        return min(ended - began, SHARED_SECONDS)

    async def _count(self, tenant: Tenant, left: list[bytes]) -> None:
        name = tenant.user.name
        try:
            tenant.disk = await disk_usage.measure_usage([self._paths.user(name), self._paths.run(name), *left])
        except Unavailable as e:
            if self._failed.get(name) != str(e):
                logger.warning("cannot measure the disk usage of %s: %s", name, e)
            self._failed[name] = str(e)
            return
        self._failed.pop(name, None)
        if tenant.disk <= self._limit:
            tenant.full = ""
            return
        if not tenant.full:
            logger.warning("stopping %s: disk usage is %d MB", name, tenant.disk // 2**20)
        tenant.full = (
            f"{name} uses {tenant.disk // 2**20:,} MB of disk, and the quota is {self._limit // 2**20:,} MB; "
            "the operator of the broker must delete files or raise broker.user_disk_mb"
        )
        await self._broker.kill_processes(tenant.user)
