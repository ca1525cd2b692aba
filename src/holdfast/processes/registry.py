"""All background processes of a store, as far as they run on this machine: started, found again, told about, ended.

A process is written down before it is started, so that no crash leaves one that nobody knows. Everything
after that is found out by looking: at the files its keeper leaves and at the machine. Whoever looks first
writes down what has changed, in one transaction that only one of several can win.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import msgspec

from holdfast.model.errors import HoldfastError, Invalid, Unavailable
from holdfast.model.identity import Identity
from holdfast.model.ids import PROCESS, Ids
from holdfast.model.process import Process, Sample, Verdict, begun, classify, duration, is_here
from holdfast.model.times import Clock
from holdfast.processes import scan
from holdfast.processes.ending import end_all, signal_all
from holdfast.processes.findings import Found, find
from holdfast.processes.folder import Folder, Page
from holdfast.processes.launch import launch
from holdfast.processes.scan import Machine, Seen, Sockets
from holdfast.settings import Settings
from holdfast.store import processes
from holdfast.store.database import Database, Transaction

logger = logging.getLogger(__name__)
ATTEND_SECONDS = 1.0
"""How soon the end of a process that was seen before is noticed."""
SAMPLE_SECONDS = 60.0
"""How often those that run are looked at, so that their signs of work are known when they are asked for."""
WAIT_SECONDS = 0.1
LOOK_SECONDS = 2.0
"""How often a wait looks for an end that no keeper writes down."""
GRACE_SECONDS = 5.0
SIGNALS = ("INT", "TERM", "HUP", "QUIT", "USR1", "USR2", "STOP", "CONT", "KILL")
"""What a process may be sent by hand."""


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """What a process is given."""

    ttl_seconds: int
    output_bytes: int


class Change(msgspec.Struct, frozen=True):
    """Something that a look has found and written down."""

    what: str
    process: Process
    evidence: str


class Registry:
    """One per worker. `environment` is what its processes see: it must hold no secrets."""

    def __init__(
        self,
        database: Database,
        clock: Clock,
        ours: Identity,
        home: Path,
        environment: Mapping[str, str],
        limits: Limits,
    ) -> None:
        self._database = database
        self._clock = clock
        self._ours = ours
        self._folders = home / "processes"
        self._environment = dict(environment)
        self._limits = limits
        self._ids = Ids(clock.now)
        self._attended: dict[str, Path] = {}
        """Processes of this machine that lived when they were last looked at."""

    async def start(self, command: str, workdir: Path, session_id: str) -> Process:
        """Start a command. If that is cancelled nothing of it stays behind. Raises Unavailable, having started nothing."""
        process = self.plan(command, workdir, session_id)
        folder = Folder(Path(process.folder))
        try:
            return await self._start(process, folder)
        except Unavailable as e:
            await self._undo_start(process, folder, f"not started: {e}")
            raise
        except asyncio.CancelledError:
            await self._undo_start(process, folder, "its start was interrupted")
            raise

    async def _start(self, process: Process, folder: Folder) -> Process:
        await self._database.write(processes.add, process)
        workdir = Path(process.workdir)
        await asyncio.to_thread(folder.prepare, process.id, process.command, workdir, self._limits.output_bytes)
        await launch("start", folder, self._environment)
        leader = await asyncio.to_thread(lambda: folder.leader)
        assert leader is not None, "a keeper writes down whom it keeps before it says that it does"
        await self._database.write(processes.identify, process.id, leader.pid, leader.started)
        self._attended[process.id] = folder.path
        logger.info(
            "process %s of session %s started: pid %d, %s", process.id, process.session_id, leader.pid, process.command
        )
        return msgspec.structs.replace(process, pid=leader.pid, process_started=leader.started)

    async def _undo_start(self, process: Process, folder: Folder, reason: str) -> None:
        if await asyncio.to_thread(folder.call_off) is None:
            await self._write_down([Found(process=process, track=process.track, ended=reason)])
        else:
            await self.stop(process, reason, grace_seconds=0)

    def plan(self, command: str, workdir: Path, session_id: str) -> Process:
        """A process that is to be started."""
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

    def judge(self, process: Process) -> Verdict:
        return classify(process, self._ours, self.mono())

    async def refresh(self) -> list[Change]:
        """Look at every process that has not ended, and write down what has changed."""
        known = await self._database.read(processes.live)
        self._attended = {one.id: Path(one.folder) for one in known if is_here(one, self._ours)}
        return await self._look_at(known) if known else []

    async def _look_at(self, known: Sequence[Process]) -> list[Change]:
        found = await asyncio.to_thread(self._look, known)
        changes = await self._write_down(found)
        for one in found:
            if one.ended is not None:
                self._attended.pop(one.process.id, None)
            elif one.keeper_is_missing:
                await self._relieve(one.process)
        return changes

    def _look(self, known: Sequence[Process]) -> list[Found]:
        machine, sockets = scan.look(), Sockets()
        at, mono = self._clock.now(), self.mono()
        found = (find(process, self._ours, machine, sockets, at=at, mono=mono) for process in known)
        return [one for one in found if one is not None]

    async def _relieve(self, process: Process) -> None:
        """Start a keeper that goes on where one was killed. If that fails, the next look tries again."""
        try:
            await launch("relieve", Folder(Path(process.folder)), self._environment)
            logger.warning("the keeper of process %s was killed; another goes on reading its output", process.id)
        except Unavailable as e:
            logger.warning("process %s has no keeper: %s", process.id, e)

    async def _write_down(self, found: Sequence[Found]) -> list[Change]:
        at = self._clock.now()

        def work(tx: Transaction) -> list[Change]:
            processes.see(tx, [(one.process.id, one.track) for one in found if one.ended is None])
            return [change for one in found if (change := self._settle(tx, one, at)) is not None]

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

    def _settle(self, tx: Transaction, one: Found, at: int) -> Change | None:
        """What is new about one process: that it has ended, or that it runs past its time."""
        process = one.process
        if one.ended is not None:
            ended = processes.end(tx, process.id, one.ended, one.exit_code, one.tail, at=at)
            return None if ended is None else Change("ended", ended, one.ended)
        if process.pid is None and one.leader is not None:
            processes.identify(tx, process.id, one.leader.pid, one.leader.started)
        seen = self.judge(msgspec.structs.replace(process, track=one.track))
        if seen.expired and process.expired_at is None and processes.expire(tx, process, seen.evidence, at=at):
            return Change(f"expired after {duration(process.ttl_seconds)}", process, seen.evidence)
        return None

    async def attend(self) -> None:
        """Notice soon when a process ends that was seen before, and look at those that run now and then; for ever."""
        next_look = 0.0
        while True:
            now = self._clock.monotonic()
            if (self._attended and now >= next_look) or await self._any_done():
                await self.take_stock()
                next_look = now + SAMPLE_SECONDS
            await asyncio.sleep(ATTEND_SECONDS)

    async def take_stock(self) -> None:
        """Find again what earlier workers started. A store that is away is for the next look."""
        try:
            await self.refresh()
        except HoldfastError as e:
            logger.warning("the processes could not be looked at and will be again: %s", e)

    async def _any_done(self) -> bool:
        done = [path / "done" for path in self._attended.values()]
        return await asyncio.to_thread(lambda: any(path.exists() for path in done))

    async def get(self, ref: str) -> Process:
        """A process as it is now. Raises NotFound or Ambiguous."""
        process = await self._database.read(processes.resolve, ref)
        if process.ended_at is not None:
            return process
        await self._look_at([process])
        return await self._database.read(processes.get, process.id)

    async def list(self, *, session_id: str | None = None, ended: bool = False) -> list[Process]:
        """Processes as they are now, oldest first: those of a session or all, and only if asked those that have ended."""
        await self.refresh()
        if session_id is not None:
            found = await self._database.read(processes.of_session, session_id)
        elif ended:
            found = (await self._database.read(processes.recent, 1000))[::-1]
        else:
            found = await self._database.read(processes.live)
        return [one for one in found if ended or one.ended_at is None]

    async def read_output(self, process: Process, start: int | None = None, limit: int = 20_000) -> Page:
        """A piece of the output, or its end. Raises Unavailable for a process of another machine."""
        return await asyncio.to_thread(self._here(process).read, start, limit)

    def _here(self, process: Process) -> Folder:
        if process.host != self._ours.host:
            raise Unavailable(f"process {process.id} is on {process.host}; its output and its programs are there")
        return Folder(Path(process.folder))

    async def wait(self, process: Process, seconds: float) -> Process:
        """The process once it has ended, or as it is when the time is up."""
        loop = asyncio.get_running_loop()
        deadline, next_look = loop.time() + seconds, 0.0
        folder = self._here(process)
        while process.ended_at is None:
            if loop.time() >= next_look or await asyncio.to_thread(folder.has, "done"):
                process = await self.get(process.id)
                next_look = loop.time() + LOOK_SECONDS
            if process.ended_at is not None or loop.time() >= deadline:
                break
            await asyncio.sleep(min(WAIT_SECONDS, max(deadline - loop.time(), 0)))
        return process

    async def write(self, process: Process, text: str, *, close: bool) -> int:
        """Give it input; how many bytes it took. Raises Invalid if it has ended or reads no more."""
        self._refuse_ended(process)
        return await asyncio.to_thread(lambda: self._here(process).give(text, close=close))

    async def signal(self, process: Process, name: str) -> int:
        """Send a signal to all its programs; how many got it. Raises Invalid for one that is not on the list."""
        import signal

        name = name.upper().removeprefix("SIG")
        if name not in SIGNALS:
            raise Invalid(f"signal {name!r} is not one of {', '.join(SIGNALS)}")
        self._refuse_ended(process)
        members = await asyncio.to_thread(self._members(process))
        return await asyncio.to_thread(signal_all, members, signal.Signals[f"SIG{name}"])

    async def stop(self, process: Process, reason: str, *, grace_seconds: float = GRACE_SECONDS) -> Process:
        """End all of it; the process as it then is. Raises Unavailable if something of it cannot be ended."""
        if process.ended_at is not None:
            return process
        look = self._members(process)
        await self._database.write(processes.ask_to_stop, process.id, reason)
        if not await end_all(look, grace_seconds):
            left = ", ".join(f"{one.name} ({one.pid})" for one in await asyncio.to_thread(look))
            raise Unavailable(f"process {process.id} could not be ended: {left} is still there")
        return await self.wait(process, LOOK_SECONDS)

    def _refuse_ended(self, process: Process) -> None:
        if process.ended_at is not None:
            raise Invalid(f"process {process.id} has ended: {process.end_reason}")

    def _members(self, process: Process) -> Callable[[], Sequence[Seen]]:
        """A look at all programs of a process, however often."""
        if not is_here(process, self._ours):
            raise Unavailable(f"process {process.id} is on {process.host}, out of reach from here")
        folder = Folder(Path(process.folder))

        def look() -> Sequence[Seen]:
            machine: Machine = scan.look()
            return machine.members(process.id, folder.leader, folder.keeper)

        return look


def open_registry(
    database: Database, settings: Settings, environment: Mapping[str, str], *, clock: Clock, ours: Identity
) -> Registry:
    """The processes of a store, as the settings want them. `environment` holds no secrets."""
    limits = Limits(ttl_seconds=settings.process_ttl_minutes * 60, output_bytes=settings.processes.output_mb << 20)
    return Registry(database, clock, ours, settings.home, environment, limits)
