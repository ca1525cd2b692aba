"""One worker as its broker sees it: started or found again, asked how it is, and ended. Known by identity, not by pid."""

import asyncio
import json
import os
import signal
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from holdfast.broker import launch, wire
from holdfast.identity import fate, started
from holdfast.model.errors import Unavailable
from holdfast.model.identity import Identity

LOG = "worker.log"
LOG_TAIL = 2000
FILES = 4096
LOOK_SECONDS = 0.05
ASK_SECONDS = 10.0


class State(msgspec.Struct, frozen=True, kw_only=True):
    """What a worker wrote down about itself before it began."""

    host: str
    boot: str
    pid: int
    started: str
    key: str
    at: int

    @property
    def identity(self) -> Identity:
        return Identity(host=self.host, boot=self.boot, pid=self.pid, process_started=self.started)


class Idle(msgspec.Struct, frozen=True):
    """What a worker says when it is asked whether it can be done without."""

    idle: bool
    why: list[str]
    wake_at: datetime | None


@dataclass(frozen=True, slots=True)
class Order:
    """What is needed to start a worker."""

    run: Path
    home: Path
    work: Path
    uid: int | None
    key: str
    env: Mapping[str, str]
    memory_mb: int
    processes: int
    groups: Sequence[str] = ()

    def spec(self, ours: Identity, at: int) -> dict[str, Any]:
        command = (sys.executable, "-P", "-m", "holdfast", "--home", str(self.home), "serve", "--fd", "{fd}")
        env = {**self.env, "HOME": str(self.work), "HOLDFAST_API_KEY": self.key}
        return {
            "run": str(self.run),
            "work": str(self.work),
            "argv": command,
            "env": env,
            "uid": self.uid,
            "groups": self.groups,
            "state": {"host": ours.host, "boot": ours.boot, "key": self.key, "at": at},
            "limits": {"memory_bytes": self.memory_mb * 2**20, "processes": self.processes, "files": FILES},
        }


class Worker:
    """A process that runs, or did. `gone` is set when it has ended; close it then."""

    def __init__(self, run: Path, state: State, handle: int) -> None:
        self.run = run
        self.state = state
        self.gone = asyncio.Event()
        self._handle = handle
        self.child: subprocess.Popen[bytes] | None = None
        """Set for one that we started: somebody has to take note of its end."""
        asyncio.get_running_loop().add_reader(handle, self._end)

    @property
    def socket(self) -> Path:
        return self.run / "sock"

    def _end(self) -> None:
        if self.child is not None:
            self.child.wait()
        self.gone.set()
        self.close()

    def close(self) -> None:
        """Look at it no longer; it lives on if it lives."""
        if self._handle >= 0:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1

    def signal(self, number: signal.Signals) -> None:
        """To exactly this process; nothing happens if it is gone."""
        if self._handle >= 0:
            try:
                signal.pidfd_send_signal(self._handle, number)
            except ProcessLookupError:
                pass  # it ended a moment ago, and `gone` is about to say so

    async def stop(self, seconds: float) -> bool:
        """Ask it to end, and kill it if it has not after so long; whether it ended by itself."""
        self.signal(signal.SIGTERM)
        return await self.wait_or_kill(seconds)

    async def wait_or_kill(self, seconds: float) -> bool:
        """As `stop`, for one that is about to end already: a second request to end would cut its leaving short."""
        try:
            await asyncio.wait_for(self.gone.wait(), seconds)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self.gone.wait()
            return False
        return True

    async def answers(self) -> bool:
        """Whether it listens and means to go on."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                _, body = await wire.ask(self.socket, b"/ready", self.state.key)
                return msgspec.json.decode(body)["checks"]["accepting"] == "ok"  # type: ignore[no-any-return] # compared
        except (wire.Broken, TimeoutError, msgspec.DecodeError, KeyError, TypeError):
            return False

    async def responds(self, seconds: float) -> bool:
        """Whether it says anything at all within so long."""
        try:
            async with asyncio.timeout(seconds):
                await wire.ask(self.socket, b"/health", self.state.key)
        except (wire.Broken, TimeoutError):
            return False
        return True

    async def idle(self) -> Idle | None:
        """Whether it can be done without, in its own words; None if it does not say."""
        try:
            async with asyncio.timeout(ASK_SECONDS):
                status, body = await wire.ask(self.socket, b"/v1/idle", self.state.key)
                return msgspec.json.decode(body, type=Idle) if status == 200 else None
        except (wire.Broken, TimeoutError, msgspec.DecodeError):
            return None


def find(run: Path, ours: Identity) -> tuple[State | None, Worker | None]:
    """What was last written down about a worker, and the worker itself if it still runs."""
    try:
        state = msgspec.json.decode((run / "state.json").read_bytes(), type=State)
    except (FileNotFoundError, msgspec.DecodeError):
        return None, None
    if fate(state.identity, ours) != "alive":
        return state, None
    try:
        handle = os.pidfd_open(state.pid)
    except ProcessLookupError:
        return state, None
    if started(state.pid) != state.started:  # it ended in between, and its pid was given to another
        os.close(handle)
        return state, None
    return state, Worker(run, state, handle)


def last_uid(run: Path) -> int | None:
    """The uid that the last worker had, to whom its log belongs; None if that is ours, or there was no worker."""
    try:
        uid = (run / LOG).stat().st_uid
    except FileNotFoundError:
        return None
    return uid if uid not in (0, os.geteuid()) else None


async def start(order: Order, ours: Identity, at: int, seconds: float) -> Worker:
    """A worker that answers. Should one be there that nobody knew of, it is that one. Raises Unavailable."""
    order.run.mkdir(mode=0o700, parents=True, exist_ok=True)
    child = _spawn(order, ours, at)
    answers = False
    try:
        async with asyncio.timeout(seconds):
            worker = await _appeared(child, order.run, ours)
            await _first_answer(worker)
            answers = True
    except TimeoutError as e:
        raise Unavailable(f"the worker did not answer within {seconds:.0f} s: {_last_words(order.run)}") from e
    finally:
        if not answers:
            child.kill()
            await asyncio.to_thread(child.wait)  # which nobody else should have to wait for
    return worker


async def _appeared(child: "subprocess.Popen[bytes]", run: Path, ours: Identity) -> Worker:
    """The worker that the child becomes, or the one that has the lock already."""
    while True:
        status = child.poll()
        if status is not None and status != launch.HELD:
            raise Unavailable(f"the worker could not be started: {_last_words(run)}")
        _, worker = find(run, ours)
        if worker is not None and worker.state.pid == child.pid:
            worker.child = child
            return worker
        if worker is not None and status == launch.HELD:
            return worker
        if worker is not None:  # what is written down is of another one, and the child is about to find that out
            worker.close()
        await asyncio.sleep(LOOK_SECONDS)


async def _first_answer(worker: Worker) -> None:
    """The socket takes connections before the worker does, so the first question waits for it."""
    asking = asyncio.ensure_future(wire.ask(worker.socket, b"/health", worker.state.key))
    dying = asyncio.ensure_future(worker.gone.wait())
    try:
        await asyncio.wait({asking, dying}, return_when=asyncio.FIRST_COMPLETED)
        if not asking.done() or asking.exception() is not None:
            raise Unavailable(f"the worker ended while it started: {_last_words(worker.run)}")
    finally:
        asking.cancel()
        dying.cancel()


def _spawn(order: Order, ours: Identity, at: int) -> "subprocess.Popen[bytes]":
    command: Sequence[str] = (sys.executable, "-I", "-S", launch.__file__)
    log = os.open(order.run / LOG, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    try:
        if order.uid is not None:
            os.fchown(log, order.uid, order.uid)  # who writes it: it counts for their quota, not for the broker's
        child = subprocess.Popen(  # noqa: S603 - the command is ours
            command, cwd="/", env={}, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
    except OSError as e:
        raise Unavailable(f"the worker could not be started: {e}") from e
    finally:
        os.close(log)
    assert child.stdin is not None, "it has a pipe"
    try:
        with child.stdin as pipe:
            pipe.write(json.dumps(order.spec(ours, at)).encode())
    except BrokenPipeError:
        pass  # it has ended already, and its status says more
    return child


def _last_words(run: Path) -> str:
    """What it said at the end, on one line."""
    try:
        with (run / LOG).open("rb") as log:  # it is as long as the user likes
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL))
            said = log.read(LOG_TAIL).decode("utf-8", "replace")
    except OSError:
        said = ""
    return " ".join(said.split()[-40:]) or "it said nothing"
