"""One worker process: start or find it, check it, stop it. Identified by pid and start time, not by pid alone."""

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

from holdfast.broker import http_client, launch
from holdfast.model.errors import Unavailable
from holdfast.model.process_identity import Identity
from holdfast.process_lookup import check_process, get_start_time
from holdfast.tasks import running, wait_for_first

LOG_FILE = "worker.log"
LOG_TAIL = 2000
MAX_FILES = 4096
POLL_SECONDS = 0.05
REQUEST_SECONDS = 10.0


class WorkerState(msgspec.Struct, frozen=True, kw_only=True):
    """The state file that a worker writes before it starts."""

    host: str
    boot: str
    pid: int
    started: str
    key: str
    at: int

    @property
    def identity(self) -> Identity:
        return Identity(host=self.host, boot=self.boot, pid=self.pid, process_started=self.started)


class IdleReport(msgspec.Struct, frozen=True):
    """A worker's response to `/v1/idle`."""

    idle: bool
    why: list[str]
    wake_at: datetime | None


@dataclass(frozen=True, slots=True)
class WorkerSpec:
    """Everything needed to start a worker."""

    run: Path
    home: Path
    work: Path
    uid: int | None
    key: str
    env: Mapping[str, str]
    memory_mb: int
    processes: int
    groups: Sequence[str] = ()

    def to_json(self, ours: Identity, at: int) -> dict[str, Any]:
        command = (sys.executable, "-P", "-m", "holdfast", "--home", str(self.home), "serve", "--fd", "{fd}")
        env = {**self.env, "HOME": str(self.work), "HOLDFAST_API_KEY": self.key, "HOLDFAST_WORKDIR": str(self.work)}
        return {
            "run": str(self.run),
            "work": str(self.work),
            "argv": command,
            "env": env,
            "uid": self.uid,
            "groups": self.groups,
            "state": {"host": ours.host, "boot": ours.boot, "key": self.key, "at": at},
            "limits": {"memory_bytes": self.memory_mb * 2**20, "processes": self.processes, "files": MAX_FILES},
        }


class WorkerProcess:
    """A worker process. `gone` is set when it has ended; close it then."""

    def __init__(self, run: Path, state: WorkerState, handle: int) -> None:
        self.run = run
        self.state = state
        self.gone = asyncio.Event()
        self._handle = handle
        self.child: subprocess.Popen[bytes] | None = None
        """Set for a child of ours, which must be waited for."""
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
        """Stop watching the process; it keeps running."""
        if self._handle >= 0:
            asyncio.get_running_loop().remove_reader(self._handle)
            os.close(self._handle)
            self._handle = -1

    def signal(self, number: signal.Signals) -> None:
        """Signal exactly this process; does nothing if it has ended."""
        if self._handle >= 0:
            try:
                signal.pidfd_send_signal(self._handle, number)
            except ProcessLookupError:
                pass  # it just ended, and `gone` will be set

    async def stop(self, seconds: float) -> bool:
        """Send SIGTERM, and SIGKILL after the timeout; return whether it ended by itself."""
        self.signal(signal.SIGTERM)
        return await self.wait_or_kill(seconds)

    async def wait_or_kill(self, seconds: float) -> bool:
        """As `stop`, for a process already shutting down: a second SIGTERM would cut the shutdown short."""
        try:
            await asyncio.wait_for(self.gone.wait(), seconds)
        except TimeoutError:
            self.signal(signal.SIGKILL)
            await self.gone.wait()
            return False
        return True

    async def is_ready(self) -> bool:
        """Return whether it accepts requests and is not shutting down."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                _, body = await http_client.get(self.socket, b"/ready", self.state.key)
                return msgspec.json.decode(body)["checks"]["accepting"] == "ok"  # type: ignore[no-any-return] # compared
        except (http_client.ConnectionBroken, TimeoutError, msgspec.DecodeError, KeyError, TypeError):
            return False

    async def responds(self, seconds: float) -> bool:
        """Return whether it responds in time."""
        try:
            async with asyncio.timeout(seconds):
                await http_client.get(self.socket, b"/health", self.state.key)
        except (http_client.ConnectionBroken, TimeoutError):
            return False
        return True

    async def idle(self) -> IdleReport | None:
        """Ask whether it is idle; None if it does not respond."""
        try:
            async with asyncio.timeout(REQUEST_SECONDS):
                status, body = await http_client.get(self.socket, b"/v1/idle", self.state.key)
                return msgspec.json.decode(body, type=IdleReport) if status == 200 else None
        except (http_client.ConnectionBroken, TimeoutError, msgspec.DecodeError):
            return None


def find_worker(run: Path, ours: Identity) -> tuple[WorkerState | None, WorkerProcess | None]:
    """Return the last state of a worker, and its process if it still runs."""
    try:
        state = msgspec.json.decode((run / "state.json").read_bytes(), type=WorkerState)
    except (FileNotFoundError, msgspec.DecodeError):
        return None, None
    if check_process(state.identity, ours) != "alive":
        return state, None
    try:
        handle = os.pidfd_open(state.pid)
    except ProcessLookupError:
        return state, None
    if get_start_time(state.pid) != state.started:  # it ended meanwhile, and its pid was reused
        os.close(handle)
        return state, None
    return state, WorkerProcess(run, state, handle)


def last_uid(run: Path) -> int | None:
    """Return the uid of the last worker, which owns its log; None if it is ours or there was no worker."""
    try:
        uid = (run / LOG_FILE).stat().st_uid
    except FileNotFoundError:
        return None
    return uid if uid not in (0, os.geteuid()) else None


async def start_worker(spec: WorkerSpec, ours: Identity, at: int, seconds: float) -> WorkerProcess:
    """Start a worker and wait until it responds. If one runs already, return that one. Raises Unavailable."""
    spec.run.mkdir(mode=0o700, parents=True, exist_ok=True)
    child = _spawn(spec, ours, at)
    answers = False
    try:
        async with asyncio.timeout(seconds):
            worker = await _wait_until_found(child, spec.run, ours)
            await _wait_until_responding(worker)
            answers = True
    except TimeoutError as e:
        raise Unavailable(f"the worker did not respond within {seconds:.0f} s: {_log_tail(spec.run)}") from e
    finally:
        if not answers:
            child.kill()
            await asyncio.to_thread(child.wait)  # in a thread, so that nothing else waits
    return worker


async def _wait_until_found(child: "subprocess.Popen[bytes]", run: Path, ours: Identity) -> WorkerProcess:
    """Wait for the worker that the child becomes, or the one that holds the lock."""
    while True:
        status = child.poll()
        if status is not None and status != launch.LOCK_HELD:
            raise Unavailable(f"cannot start the worker: {_log_tail(run)}")
        _, worker = find_worker(run, ours)
        if worker is not None and worker.state.pid == child.pid:
            worker.child = child
            return worker
        if worker is not None and status == launch.LOCK_HELD:
            return worker
        if worker is not None:  # the state is that of another worker, which the child will find out
            worker.close()
        await asyncio.sleep(POLL_SECONDS)


async def _wait_until_responding(worker: WorkerProcess) -> None:
    """Wait for the first response. The socket accepts connections before the worker is ready."""
    async with running(http_client.get(worker.socket, b"/health", worker.state.key), worker.gone.wait()) as (
        asking,
        dying,
    ):
        await wait_for_first(asking, dying)
        if not asking.done() or asking.exception() is not None:
            raise Unavailable(f"the worker exited during start: {_log_tail(worker.run)}")


def _spawn(spec: WorkerSpec, ours: Identity, at: int) -> "subprocess.Popen[bytes]":
    command: Sequence[str] = (sys.executable, "-I", "-S", launch.__file__)
    log = os.open(spec.run / LOG_FILE, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_APPEND, 0o600)
    try:
        if spec.uid is not None:
            os.fchown(log, spec.uid, spec.uid)  # its writer owns it: it counts for the user's quota
        child = subprocess.Popen(  # noqa: S603 - the command is ours
            command, cwd="/", env={}, stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True
        )
    except OSError as e:
        raise Unavailable(f"cannot start the worker: {e}") from e
    finally:
        os.close(log)
    assert child.stdin is not None, "Popen made the pipe"
    try:
        with child.stdin as pipe:
            pipe.write(json.dumps(spec.to_json(ours, at)).encode())
    except BrokenPipeError:
        pass  # it has exited, and its status says more
    return child


def _log_tail(run: Path) -> str:
    """Return the end of its log on one line."""
    try:
        with (run / LOG_FILE).open("rb") as log:  # the user controls its length
            log.seek(max(0, log.seek(0, os.SEEK_END) - LOG_TAIL))
            said = log.read(LOG_TAIL).decode("utf-8", "replace")
    except OSError:
        said = ""
    return " ".join(said.split()[-40:]) or "its log is empty"
