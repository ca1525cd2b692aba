"""Starts, finds, reports and terminates the background processes of a store on this machine.

A process is recorded before it is started, so that no crash leaves an unknown one. Its later state comes from inspecting
the files of its shim and the process table. The worker that first sees a change records it, in a transaction that
succeeds for only one of several workers.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.model.errors import HoldfastError, Invalid, Unavailable
from holdfast.model.ids import PROCESS, Ids
from holdfast.model.process import Process, ProcessVerdict, Sample, begun, classify, duration, is_here
from holdfast.model.process_identity import Identity
from holdfast.model.terminal_text import plain_text
from holdfast.model.times import Clock
from holdfast.processes import procfs
from holdfast.processes.inspect import Inspection, inspect_process
from holdfast.processes.launch import launch
from holdfast.processes.process_dir import LaunchPlan, OutputPage, ProcessDir
from holdfast.processes.procfs import Sockets
from holdfast.processes.terminate import FindMembers, signal_all, terminate_all
from holdfast.settings import Settings
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import processes
from holdfast.supervisor import BackgroundTask, Completed, ignore_cycle

logger = logging.getLogger(__name__)
POLL_SECONDS = 1.0
"""How often the processes that ran at the last inspection are checked for their end."""
SAMPLE_SECONDS = 60.0
"""How often running processes are sampled, so that their activity is known when a reset or a client asks."""
CYCLE_LIMIT = 600.0
"""Seconds that a cycle may take: it starts missing shims one after another, and waits up to 30 s for each."""
WAIT_SECONDS = 0.1
INSPECT_SECONDS = 2.0
"""How often a wait inspects the process, for an end that no shim records."""
GRACE_SECONDS = 5.0
SIGNALS = ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "STOP", "CONT", "KILL")
"""The signals that a user or a tool may send to a process."""


class ProcessLimits(msgspec.Struct, frozen=True, kw_only=True):
    """The limits of each process."""

    ttl_seconds: int
    output_bytes: int


class ProcessChange(msgspec.Struct, frozen=True):
    """A change that an inspection found and recorded."""

    what: str
    process: Process
    evidence: str


class ProcessRegistry:
    """One per worker. `environment` is the environment of its processes: it must contain no secrets."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        ours: Identity,
        home: Path,
        environment: Mapping[str, str],
        limits: ProcessLimits,
    ) -> None:
        self._database = database
        self._clock = clock
        self._ours = ours
        self._folders = home / "processes"
        self._environment = dict(environment)
        self._limits = limits
        self._ids = Ids(clock.now)
        self._running: dict[str, Path] = {}
        """Processes of this machine that ran at the last inspection, and their directories."""

    async def start(
        self,
        command: str,
        workdir: Path,
        session_id: str,
        *,
        launch_plan: LaunchPlan | None = None,
    ) -> Process:
        """Start a command. After a cancellation or Unavailable, none of its programs is left running."""
        process = self.plan(command, workdir, session_id)
        folder = ProcessDir(Path(process.folder))
        try:
            return await self._start(process, folder, launch_plan or LaunchPlan(workdir))
        except Unavailable as e:
            await self._undo_start(process, folder, f"not started: {e}")
            raise
        except asyncio.CancelledError:
            await self._undo_start(process, folder, "its start was interrupted")
            raise

    async def _start(self, process: Process, folder: ProcessDir, plan: LaunchPlan) -> Process:
        await self._database.write(processes.add, process)
        await asyncio.to_thread(folder.prepare, process.id, process.command, plan, self._limits.output_bytes)
        await launch("start", folder, self._environment)
        leader = await asyncio.to_thread(lambda: folder.leader)
        assert leader is not None, "the shim records the command before it reports success"
        await self._database.write(processes.identify, process.id, leader.pid, leader.started)
        self._running[process.id] = folder.path
        logger.info(
            "process %s of session %s started: pid %d, %s", process.id, process.session_id, leader.pid, process.command
        )
        return msgspec.structs.replace(process, pid=leader.pid, process_started=leader.started)

    async def _undo_start(self, process: Process, folder: ProcessDir, reason: str) -> None:
        if await asyncio.to_thread(folder.cancel_start) is None:
            await self._record([Inspection(process=process, track=process.track, ended=reason)])
        else:
            await self.stop(process, reason, grace_seconds=0)

    def plan(self, command: str, workdir: Path, session_id: str) -> Process:
        """Create the record of a process to start."""
        at, mono, process_id = self._clock.now(), self.mono(), self._ids.make(PROCESS)
        return Process(
            id=process_id,
            session_id=session_id,
            command=command,
            workdir=str(workdir),
            folder=str(self._folders / process_id),
            host=self._ours.host,
            boot=self._ours.boot,
            pid=None,
            process_started=None,
            started_at=at,
            started_mono=mono,
            ttl_seconds=self._limits.ttl_seconds,
            track=begun(Sample(at=at, mono=mono)),
            stop_reason=None,
            expired_at=None,
            ended_at=None,
            exit_code=None,
            end_reason=None,
        )

    def mono(self) -> int:
        return int(self._clock.monotonic() * 1e6)

    def now(self) -> int:
        return self._clock.now()

    def classify(self, process: Process) -> ProcessVerdict:
        return classify(process, self._ours, self.mono())

    async def refresh(self) -> list[ProcessChange]:
        """Inspect every process that has not ended, and record the changes."""
        known = await self._database.read(processes.list_live)
        self._running = {process.id: Path(process.folder) for process in known if is_here(process, self._ours)}
        return await self._inspect(known) if known else []

    async def _inspect(self, known: Sequence[Process]) -> list[ProcessChange]:
        inspections = await asyncio.to_thread(self._inspect_all, known)
        changes = await self._record(inspections)
        for inspection in inspections:
            if inspection.ended is not None:
                self._running.pop(inspection.process.id, None)
            elif inspection.shim_is_missing:
                await self._replace_shim(inspection.process)
        return changes

    def _inspect_all(self, known: Sequence[Process]) -> list[Inspection]:
        table, sockets = procfs.read_process_table(), Sockets()
        at, mono = self._clock.now(), self.mono()
        found = (inspect_process(process, self._ours, table, sockets, at=at, mono=mono) for process in known)
        return [inspection for inspection in found if inspection is not None]

    async def _replace_shim(self, process: Process) -> None:
        """Start a new shim for a process whose shim was killed. If that fails, the next inspection tries again."""
        try:
            await launch("resume", ProcessDir(Path(process.folder)), self._environment)
            logger.warning("the shim of process %s was killed; a new one reads its output", process.id)
        except Unavailable as e:
            logger.warning("process %s has no shim: %s", process.id, e)

    async def _record(self, inspections: Sequence[Inspection]) -> list[ProcessChange]:
        at = self._clock.now()

        def work(tx: Transaction) -> list[ProcessChange]:
            processes.record_tracks(tx, [(one.process.id, one.track) for one in inspections if one.ended is None])
            return [change for one in inspections if (change := self._record_one(tx, one, at)) is not None]

        changes = await self._database.write(work)
        for change in changes:
            logger.info(
                "process %s of session %s %s: %s (%s)",
                change.process.id,
                change.process.session_id,
                change.what,
                change.evidence,
                change.process.command,
            )
        return changes

    def _record_one(self, tx: Transaction, inspection: Inspection, at: int) -> ProcessChange | None:
        """Record the end or the expiry of a process. None if neither is new."""
        process, leader = inspection.process, inspection.leader
        if inspection.ended is not None:
            ended = processes.end(tx, process.id, inspection.ended, inspection.exit_code, inspection.tail, at=at)
            return None if ended is None else ProcessChange("ended", ended, inspection.ended)
        if process.pid is None and leader is not None:
            processes.identify(tx, process.id, leader.pid, leader.started)
        verdict = self.classify(msgspec.structs.replace(process, track=inspection.track))
        if verdict.expired and process.expired_at is None and processes.expire(tx, process, verdict.evidence, at=at):
            return ProcessChange(f"expired after {duration(process.ttl_seconds)}", process, verdict.evidence)
        return None

    def as_task(self) -> BackgroundTask:
        return BackgroundTask(self.watch, POLL_SECONDS, CYCLE_LIMIT)

    async def watch(self, completed: Completed = ignore_cycle) -> None:
        """Detect soon that a process has ended, and sample the running ones, until cancelled. Raises any error."""
        next_sample = 0.0
        while True:
            now = self._clock.monotonic()
            if (self._running and now >= next_sample) or await self._any_done():
                await self.refresh()
                next_sample = now + SAMPLE_SECONDS
            completed()
            await asyncio.sleep(POLL_SECONDS)

    async def try_refresh(self) -> None:
        """Refresh, which also finds the processes of earlier workers. Logs an error as a warning: `watch` tries again."""
        try:
            await self.refresh()
        except (HoldfastError, OSError) as e:
            logger.warning("cannot inspect the background processes; will retry: %s", e)

    async def _any_done(self) -> bool:
        done = [path / "done" for path in self._running.values()]
        return await asyncio.to_thread(lambda: any(path.exists() for path in done))

    async def get(self, ref: str) -> Process:
        """A process in its present state. Raises NotFound or Ambiguous."""
        process = await self._database.read(processes.resolve, ref)
        if process.ended_at is not None:
            return process
        await self._inspect([process])
        return await self._database.read(processes.get, process.id)

    async def list(self, *, session_id: str | None = None, ended: bool = False) -> list[Process]:
        """Processes in their present state, oldest first: all or those of a session; with `ended`, also those that have ended."""
        await self.refresh()
        if session_id is not None:
            found = await self._database.read(processes.list_by_session, session_id)
        elif ended:
            found = (await self._database.read(processes.list_recent, 1000))[::-1]
        else:
            found = await self._database.read(processes.list_live)
        return [process for process in found if ended or process.ended_at is None]

    async def read_output(self, process: Process, start: int | None = None, limit: int = 20_000) -> OutputPage:
        """A part of the output, by default its end. Raises Unavailable for a process of another machine."""
        return await asyncio.to_thread(self._local_dir(process).read, start, limit)

    async def read_newest(self, process: Process, limit: int) -> str:
        """The last bytes of the output, as a terminal would show them. Raises Unavailable for a process of another machine."""
        return await asyncio.to_thread(lambda: plain_text(self._local_dir(process).read(None, limit).text.encode()))

    def _local_dir(self, process: Process) -> ProcessDir:
        if process.host != self._ours.host:
            raise Unavailable(f"process {process.id} is on {process.host}; its output is available only there")
        return ProcessDir(Path(process.folder))

    async def wait(self, process: Process, seconds: float) -> Process:
        """Wait until the process has ended or the time is over, and return it in its present state."""
        loop = asyncio.get_running_loop()
        deadline, next_inspection = loop.time() + seconds, 0.0
        folder = self._local_dir(process)
        while process.ended_at is None:
            if loop.time() >= next_inspection or await asyncio.to_thread(folder.has, "done"):
                process = await self.get(process.id)
                next_inspection = loop.time() + INSPECT_SECONDS
            if process.ended_at is not None or loop.time() >= deadline:
                break
            await asyncio.sleep(min(WAIT_SECONDS, max(deadline - loop.time(), 0)))
        return process

    async def write(self, process: Process, text: str, *, close: bool) -> int:
        """Write to its standard input. Returns the number of bytes written. Raises Invalid if it has ended or reads no input."""
        self._refuse_ended(process)
        return await asyncio.to_thread(lambda: self._local_dir(process).write_input(text, close=close))

    async def signal(self, process: Process, name: str) -> int:
        """Send a signal to all its programs. Returns how many received it. Raises Invalid for a signal not in `SIGNALS`."""
        import signal

        name = name.upper().removeprefix("SIG")
        if name not in SIGNALS:
            raise Invalid(f"unknown signal {name!r}; use one of {', '.join(SIGNALS)}")
        self._refuse_ended(process)
        members = await asyncio.to_thread(self._member_finder(process))
        return await asyncio.to_thread(signal_all, members, signal.Signals[f"SIG{name}"])

    async def stop(self, process: Process, reason: str, *, grace_seconds: float = GRACE_SECONDS) -> Process:
        """Terminate all its programs, and return it in its final state. Raises Unavailable if a program does not end."""
        if process.ended_at is not None:
            return process
        find_members = self._member_finder(process)
        await self._database.write(processes.set_stop_reason, process.id, reason)
        if not await terminate_all(find_members, grace_seconds):
            left = ", ".join(f"{one.name} ({one.pid})" for one in await asyncio.to_thread(find_members))
            raise Unavailable(f"cannot terminate process {process.id}: still running: {left}")
        return await self.wait(process, INSPECT_SECONDS)

    def _refuse_ended(self, process: Process) -> None:
        if process.ended_at is not None:
            raise Invalid(f"process {process.id} has ended: {process.end_reason}")

    def _member_finder(self, process: Process) -> FindMembers:
        """A function that returns the programs of a process that run when it is called."""
        if not is_here(process, self._ours):
            raise Unavailable(f"process {process.id} is on {process.host} and cannot be controlled from this machine")
        folder = ProcessDir(Path(process.folder))
        return lambda: procfs.read_process_table().members(process.id, folder.leader, folder.shim)


def open_registry(
    database: Database, settings: Settings, environment: Mapping[str, str], *, clock: Clock, ours: Identity
) -> ProcessRegistry:
    """Open the processes of a store with these settings. `environment` must contain no secrets."""
    limits = ProcessLimits(
        ttl_seconds=settings.process_ttl_minutes * 60, output_bytes=settings.processes.output_mb << 20
    )
    return ProcessRegistry(database, clock, ours, settings.home, environment, limits)
