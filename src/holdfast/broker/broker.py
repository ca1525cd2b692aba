"""Manages the workers of all users: finds running ones, starts and stops them, and writes the status file."""

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
from holdfast.broker.cgroups import UserCgroups
from holdfast.broker.paths import BrokerPaths
from holdfast.broker.rate_limit import RateLimit
from holdfast.broker.tenant import Tenant, TenantLimits, read_wake
from holdfast.broker.users import User, Users
from holdfast.broker.worker import WorkerProcess, WorkerSpec
from holdfast.model.errors import Busy, Unavailable
from holdfast.model.process_identity import Identity
from holdfast.model.times import Clock
from holdfast.process_lookup import current_identity
from holdfast.settings import BrokerSettings as Wanted
from holdfast.supervisor import BackgroundTask, Completed, Supervisor, describe_failure, ignore_cycle, list_down
from holdfast.tasks import Tasks, running

logger = logging.getLogger(__name__)
MAINTENANCE_SECONDS = 1.0
MAX_PARALLEL_STARTS = max(2, os.cpu_count() or 2)
"""Workers started in parallel: more would only slow each other down."""
START_SLOT_SECONDS = 5.0
GROUP_REMOVAL_TRIES = 20
GROUP_REMOVAL_SECONDS = 0.05


class UserState(msgspec.Struct, frozen=True):
    """One user in the broker's status file."""

    state: str
    open: int
    starts: int
    deaths: int
    complaint: str
    wake_at: int | None
    disk: int | None


class BrokerState(msgspec.Struct, frozen=True):
    """The broker's status file."""

    identity: Identity
    address: str
    users: dict[str, UserState]
    complaints: list[str] = []
    """Failures of the broker's own background tasks."""


class Broker:
    """The broker without HTTP. `async with` adopts the workers of an earlier broker, and stops all workers on exit."""

    def __init__(self, paths: BrokerPaths, users: Users, wanted: Wanted, env: Mapping[str, str], clock: Clock) -> None:
        self.users = users
        self.tenants: dict[str, Tenant] = {}
        self.address = ""
        self.supervisor: Supervisor | None = None
        """Supervises the broker's tasks; the status file shows their failures."""
        self._paths = paths
        self._wanted = wanted
        self._env = env
        self._clock = clock
        self._ours = current_identity()
        self._rules = TenantLimits(wanted.idle_minutes * 60, wanted.stop_seconds, wanted.requests)
        self._starting = asyncio.Semaphore(MAX_PARALLEL_STARTS)
        self._leaving: dict[str, asyncio.Task[None]] = {}
        self._tasks = Tasks()
        self._is_leaving = False
        self._groups = UserCgroups.detect(paths.broker)
        self._written = b""
        self._lock = -1

    def tenant(self, user: User) -> Tenant:
        """Return the tenant of a user. `_start` waits for the removal of an earlier user of that name."""
        found = self.tenants.get(user.name)
        if found is None:
            pace = RateLimit(self._wanted.kb_per_second, self._clock.monotonic)
            found = Tenant(user, self._rules, self._start, pace, self._clock.monotonic)
            self.tenants[user.name] = found
        found.user = user
        return found

    async def _start(self, user: User) -> WorkerProcess:
        if user.name in self._leaving:
            await asyncio.wait({self._leaving[user.name]})
        if self._is_leaving:
            raise Unavailable("the broker is shutting down and starts no workers")
        self.users.get(user.name)  # the user may have been removed while a request waited
        folder = self._paths.user(user.name)
        order = WorkerSpec(
            run=self._paths.run(user.name),
            home=folder / "home",
            work=folder / "work",
            uid=user.uid,
            key=user.worker_key,
            env=self._env,
            memory_mb=self._wanted.memory_mb,
            processes=self._wanted.processes,
            groups=self._groups.create(user.name, self._wanted.user_memory_mb * 2**20),
        )
        if not folder.is_dir():
            raise Unavailable(f"the home of {user.name} is missing: {folder}")
        starting = worker.start_worker(order, self._ours, self._clock.now(), self._wanted.start_seconds)
        return await self._run_start(starting)

    async def _run_start(self, starting: Coroutine[Any, Any, WorkerProcess]) -> WorkerProcess:
        """Limit parallel starts. A start that hangs frees its slot before it times out, so that others do not wait for it."""
        try:
            await self._starting.acquire()
        except asyncio.CancelledError:
            starting.close()
            raise
        async with running(starting) as (task,):
            try:
                await asyncio.wait({task}, timeout=START_SLOT_SECONDS)
            finally:
                self._starting.release()
            worker: WorkerProcess = await task
            return worker

    async def __aenter__(self) -> Self:
        self._paths.prepare()
        self._lock = os.open(self._paths.lock, os.O_RDWR | os.O_CREAT, 0o600)
        try:
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError as e:
            os.close(self._lock)
            raise Busy(f"another broker is using {self._paths.broker}") from e
        for controller, why in self._groups.set_up().items():
            logger.warning("no cgroup limit on %s per user: %s", controller, why)
        for run in sorted((self._paths.broker / "run").iterdir()):
            await self._adopt(run.name)
        return self

    async def _adopt(self, name: str) -> None:
        """Handle a worker of an earlier broker: adopt it, mark it as lost, or stop it if its user was removed."""
        run = self._paths.run(name)
        state, found = worker.find_worker(run, self._ours)
        user = self.users.all().get(name)
        if user is None and found is not None:
            await found.stop(self._wanted.stop_seconds)
        uid = worker.last_uid(run)
        if uid is not None and (user is None or user.uid != uid):  # an interrupted removal
            await asyncio.to_thread(uids.kill_processes, uid)
        if user is None:
            await asyncio.to_thread(self._groups.kill_processes, name)
            shutil.rmtree(run)
            return
        tenant = self.tenant(user)
        tenant.wake_at = read_wake(run)
        if found is not None:
            logger.info("adopted the worker of %s, pid %d", name, found.state.pid)
            tenant.adopt(found)
        elif state is not None:
            tenant.mark_lost()

    def as_task(self) -> BackgroundTask:
        return BackgroundTask(self.work, MAINTENANCE_SECONDS)

    async def work(self, completed: Completed = ignore_cycle) -> None:
        """Maintain all tenants until cancelled. Raises on failure."""
        while True:
            self.maintain()
            completed()
            await asyncio.sleep(MAINTENANCE_SECONDS)

    def maintain(self) -> None:
        known = self.users.all()
        for name in [name for name in self.tenants if name not in known and name not in self._leaving]:
            self._leaving[name] = self._tasks.start(self._clean_up(name), name=f"clean up {name}")
        for name, tenant in self.tenants.items():
            if name in known and name not in self._leaving:
                tenant.user = known[name]
                tenant.maintain(self._clock.now())
        try:
            self._write_status()
        except OSError as e:  # such as a full disk: workers matter more than the status file
            logger.warning("cannot write the broker's status file: %s", e)

    async def kill_processes(self, user: User) -> None:
        """Kill the user's processes; a failure is logged and does not affect other users."""
        try:
            if user.uid is not None:
                await asyncio.to_thread(uids.kill_processes, user.uid)
            else:
                await asyncio.to_thread(self._groups.kill_processes, user.name)
        except (OSError, subprocess.SubprocessError) as e:
            logger.warning("cannot kill the processes of %s: %s", user.name, e)

    async def _clean_up(self, name: str) -> None:
        """Clean up after a removed user."""
        try:
            tenant = self.tenants.pop(name)
            try:
                await tenant.leave("the user was removed")
            finally:
                await self.kill_processes(tenant.user)
            self._groups.remove(name)
            shutil.rmtree(self._paths.run(name), ignore_errors=True)
        finally:
            del self._leaving[name]

    def _write_status(self) -> None:
        """Write the status file for `holdfast broker status`, without fsync: it is useless once the broker has died."""
        lines = {
            name: UserState(
                one.state, one.open, one.starts, one.deaths, one.full or one.complaint, one.wake_at, one.disk
            )
            for name, one in self.tenants.items()
        }
        tasks = [] if self.supervisor is None else list_down(self.supervisor.statuses())
        text = msgspec.json.encode(
            BrokerState(self._ours, self.address, lines, [describe_failure(task) for task in tasks])
        )
        if text != self._written:
            draft = self._paths.status_file.with_suffix(".tmp")
            with os.fdopen(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
                file.write(text)
            draft.replace(self._paths.status_file)
            self._written = text

    async def leave(self) -> None:
        """Stop all workers: each finishes its current step and notifies its clients."""
        self._is_leaving = True
        async with running(*(tenant.leave("the broker is shutting down") for tenant in self.tenants.values())) as tasks:
            leaving = [*tasks, *self._leaving.values()]
            if leaving:
                await asyncio.wait(leaving)
            for task in leaving:
                task.result()

    async def _remove_groups(self) -> None:
        """Remove the cgroups. Processes that just ended keep theirs for a moment, running ones for good."""
        for _ in range(GROUP_REMOVAL_TRIES):
            if self._groups.remove():
                break
            await asyncio.sleep(GROUP_REMOVAL_SECONDS)

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        try:
            await self.leave()
            await self._remove_groups()
            self._paths.status_file.unlink(missing_ok=True)
        finally:
            await self._tasks.close()
            os.close(self._lock)
