"""All users at once: finds the workers that are there, starts and ends them, and writes down how things stand."""

import asyncio
import fcntl
import logging
import os
import shutil
import subprocess
from collections.abc import Coroutine, Mapping
from types import TracebackType
from typing import Any, Self

import msgspec

from holdfast.broker import uids, worker
from holdfast.broker.groups import Groups
from holdfast.broker.pace import Pace
from holdfast.broker.places import Places
from holdfast.broker.tenant import Rules, Tenant, read_wake
from holdfast.broker.users import User, Users
from holdfast.broker.worker import Order, Worker
from holdfast.identity import identity
from holdfast.model.errors import Busy, HoldfastError, Unavailable
from holdfast.model.identity import Identity
from holdfast.model.times import Clock
from holdfast.settings import Broker as Wanted

logger = logging.getLogger(__name__)
TEND_SECONDS = 1.0
STARTS = max(2, os.cpu_count() or 2)
"""Workers that are started at the same time: a crowd of them would only make each other slow."""
TURN_SECONDS = 5.0
DROPS = 20
DROP_SECONDS = 0.05


class Line(msgspec.Struct, frozen=True):
    """One user in what the broker writes down about itself."""

    state: str
    open: int
    starts: int
    deaths: int
    complaint: str
    wake_at: int | None
    disk: int | None


class Now(msgspec.Struct, frozen=True):
    """What the broker writes down about itself."""

    identity: Identity
    address: str
    users: dict[str, Line]


class Broker:
    """Everything but the web. `async with` finds what an earlier broker has left, and ends all workers when it is left."""

    def __init__(self, places: Places, users: Users, wanted: Wanted, env: Mapping[str, str], clock: Clock) -> None:
        self.users = users
        self.tenants: dict[str, Tenant] = {}
        self.address = ""
        self._places = places
        self._wanted = wanted
        self._env = env
        self._clock = clock
        self._ours = identity()
        self._rules = Rules(wanted.idle_minutes * 60, wanted.stop_seconds, wanted.requests)
        self._starting = asyncio.Semaphore(STARTS)
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._is_leaving = False
        self._groups = Groups.of(places.broker)
        self._written = b""
        self._lock = -1

    def tenant(self, user: User) -> Tenant:
        """The user as the broker sees them. A user that has just been removed and added again is waited for elsewhere."""
        found = self.tenants.get(user.name)
        if found is None:
            pace = Pace(self._wanted.kb_per_second, self._clock.monotonic)
            found = Tenant(user, self._rules, self._start, pace, self._clock.monotonic)
            self.tenants[user.name] = found
        found.user = user
        return found

    async def _start(self, user: User) -> Worker:
        if user.name in self._leaving:
            await asyncio.wait({self._leaving[user.name]})
        if self._is_leaving:
            raise Unavailable("the broker is about to stop and starts nobody's worker")
        self.users.get(user.name)  # it may have been removed while a request of theirs waited
        folder = self._places.user(user.name)
        order = Order(
            run=self._places.run(user.name),
            home=folder / "home",
            work=folder / "work",
            uid=user.uid,
            key=user.worker_key,
            env=self._env,
            memory_mb=self._wanted.memory_mb,
            processes=self._wanted.processes,
            groups=self._groups.make(user.name, self._wanted.user_memory_mb * 2**20),
        )
        if not folder.is_dir():
            raise Unavailable(f"{user.name} has no home at {folder}")
        starting = worker.start(order, self._ours, self._clock.now(), self._wanted.start_seconds)
        return await self._in_turn(starting)

    async def _in_turn(self, starting: Coroutine[Any, Any, Worker]) -> Worker:
        """A crowd takes turns, but nobody has to wait for a worker that hangs: its turn is over before it is given up."""
        task: asyncio.Task[Worker] | None = None
        try:
            async with self._starting:
                task = asyncio.create_task(starting)
                await asyncio.wait({task}, timeout=TURN_SECONDS)
            return await task
        finally:
            if task is None:
                starting.close()
            elif not task.done():
                task.cancel()
                await asyncio.wait({task})

    async def __aenter__(self) -> Self:
        self._places.prepare()
        self._lock = os.open(self._places.lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            os.close(self._lock)
            raise Busy(f"another broker works in {self._places.broker}") from e
        for controller, why in self._groups.divide().items():
            logger.warning(
                "what a user takes of the %s is not limited, for want of a control group: %s", controller, why
            )
        for run in sorted((self._places.broker / "run").iterdir()):
            await self._take_over(run.name)
        return self

    async def _take_over(self, name: str) -> None:
        """See to a worker of an earlier broker: it is taken on, missed, or ended because its user is gone."""
        run = self._places.run(name)
        state, found = worker.find(run, self._ours)
        user = self.users.all().get(name)
        if user is None and found is not None:
            await found.stop(self._wanted.stop_seconds)
        uid = worker.last_uid(run)
        if uid is not None and (user is None or user.uid != uid):  # a removal that was cut short
            await asyncio.to_thread(uids.end_programs, uid)
        if user is None:
            await asyncio.to_thread(self._groups.end_programs, name)
            shutil.rmtree(run)
            return
        tenant = self.tenant(user)
        tenant.wake_at = read_wake(run)
        if found is not None:
            logger.info("the worker of %s is taken on as %d", name, found.state.pid)
            tenant.take_on(found)
        elif state is not None:
            tenant.miss()

    async def work(self) -> None:
        """Tend to everybody, until cancelled."""
        while True:
            try:
                self.tend()
            except HoldfastError as e:
                logger.warning("users are looked after again in a moment: %s", e)
            await asyncio.sleep(TEND_SECONDS)

    def tend(self) -> None:
        known = self.users.all()
        for name in [name for name in self.tenants if name not in known and name not in self._leaving]:
            self._leaving[name] = asyncio.create_task(self._see_off(name), name=f"see off {name}")
        for name, tenant in self.tenants.items():
            if name in known and name not in self._leaving:
                tenant.user = known[name]
                tenant.tend(self._clock.now())
        try:
            self._write_down()
        except OSError as e:  # a full disk, say: nobody needs the status as much as the users need their workers
            logger.warning("the status of the broker cannot be written: %s", e)

    async def end_programs(self, user: User) -> None:
        """As well as can be: nobody else has to suffer for it if it cannot."""
        try:
            if user.uid is not None:
                await asyncio.to_thread(uids.end_programs, user.uid)
            else:
                await asyncio.to_thread(self._groups.end_programs, user.name)
        except (OSError, subprocess.SubprocessError) as e:
            logger.warning("what runs of %s could not be ended: %s", user.name, e)

    async def _see_off(self, name: str) -> None:
        """End what a user has left who was removed."""
        try:
            tenant = self.tenants.pop(name)
            try:
                await tenant.leave("the user was removed")
            finally:
                await self.end_programs(tenant.user)
            self._groups.drop(name)
            shutil.rmtree(self._places.run(name), ignore_errors=True)
        finally:
            del self._leaving[name]

    def _write_down(self) -> None:
        """For `holdfast broker status`. It is worth no flush: a broker that is gone has no status."""
        lines = {
            name: Line(one.state, one.open, one.starts, one.deaths, one.full or one.complaint, one.wake_at, one.disk)
            for name, one in self.tenants.items()
        }
        text = msgspec.json.encode(Now(self._ours, self.address, lines))
        if text != self._written:
            draft = self._places.now.with_suffix(".tmp")
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(text)
            draft.replace(self._places.now)
            self._written = text

    async def leave(self) -> None:
        """End all workers: each finishes the step in hand, and those who listen are told."""
        self._is_leaving = True
        leaving = [asyncio.ensure_future(tenant.leave("the broker leaves")) for tenant in self.tenants.values()]
        leaving += self._leaving.values()
        if leaving:
            await asyncio.wait(leaving)
            for task in leaving:
                task.result()

    async def _drop_groups(self) -> None:
        """For the kernel, those who have just ended are still there for a moment; who lives on keeps the group."""
        for _ in range(DROPS):
            if self._groups.drop():
                break
            await asyncio.sleep(DROP_SECONDS)

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        try:
            await self.leave()
            await self._drop_groups()
            self._places.now.unlink(missing_ok=True)
        finally:
            os.close(self._lock)
