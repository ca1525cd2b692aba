"""Foreground commands that outlive the worker that ran them.

A command of the terminal tool continues when its worker is killed. While it runs, its identity is in the file
`<home>/processes/foreground/<digest>.json`. The file needs no fsync: a power cut ends the command as well. The worker
that recovers the turn reads the file, and registers a command that still runs as a background process.
"""

import asyncio
import contextlib
import hashlib
import json
import logging
import os
from collections.abc import Iterator
from pathlib import Path

import msgspec

from holdfast.model.process import Process
from holdfast.model.process_identity import Identity
from holdfast.model.tool import ToolContext
from holdfast.process_lookup import check_process, get_start_time
from holdfast.processes.process_dir import ProcessDir, Program
from holdfast.processes.registry import ProcessRegistry
from holdfast.store import durable_file
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import processes

logger = logging.getLogger(__name__)


class ForegroundRecord(msgspec.Struct, frozen=True):
    """A foreground command while it runs."""

    session_id: str
    call_id: str
    command: str
    workdir: str
    program: Identity


class ForegroundCommands:
    """Records the foreground commands of this worker, and adopts those of dead workers."""

    def __init__(self, database: Database, registry: ProcessRegistry, home: Path, ours: Identity) -> None:
        self._database = database
        self._registry = registry
        self._folder = home / "processes" / "foreground"
        self._ours = ours

    @contextlib.contextmanager
    def recording(self, context: ToolContext, command: str, workdir: Path, pid: int) -> Iterator[None]:
        """Keep the record of a command during the block. If it cannot be written, the command runs anyway."""
        path = self._path(context.session_id, context.call_id)
        try:
            self._write(path, context, command, workdir, pid)
        except OSError as e:
            logger.warning("cannot record command %d of session %s: %s", pid, context.session_id, e)
        try:
            yield
        finally:
            with contextlib.suppress(FileNotFoundError):
                path.unlink()

    def _write(self, path: Path, context: ToolContext, command: str, workdir: Path, pid: int) -> None:
        began = get_start_time(pid)
        if began is None:
            return  # it has already ended
        program = Identity(host=self._ours.host, boot=self._ours.boot, pid=pid, process_started=began)
        record = ForegroundRecord(context.session_id, context.call_id, command, str(workdir), program)
        durable_file.make_private_folders(path.parent)
        file = os.open(path.with_suffix(".tmp"), os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(file, "w", encoding="ascii") as text:
            json.dump(msgspec.to_builtins(record), text)
        path.with_suffix(".tmp").rename(path)

    def _path(self, session_id: str, call_id: str) -> Path:
        name = hashlib.sha256(f"{session_id}\n{call_id}".encode("utf-8", "surrogatepass")).hexdigest()[:32]
        return self._folder / f"{name}.json"

    async def adopt(self, session_id: str, call_id: str) -> Process | None:
        """Register a command left by a dead worker as a background process. None if it no longer runs on this machine."""
        path = self._path(session_id, call_id)
        try:
            record = await asyncio.to_thread(lambda: msgspec.json.decode(path.read_bytes(), type=ForegroundRecord))
        except FileNotFoundError:
            return None
        except (OSError, msgspec.DecodeError) as e:
            logger.warning("cannot read the record of call %s in session %s: %s", call_id, session_id, e)
            return None
        found = check_process(record.program, self._ours)
        if found == "elsewhere":
            return None
        process = await self._adopt(record) if found == "alive" else None
        await asyncio.to_thread(path.unlink, missing_ok=True)
        return process

    async def _adopt(self, record: ForegroundRecord) -> Process:
        planned = self._registry.plan(record.command, Path(record.workdir), record.session_id)
        program = Program(record.program.pid, record.program.process_started)
        await asyncio.to_thread(ProcessDir(Path(planned.folder)).adopt, program)
        process = await self._database.write(_register, planned, program)
        logger.warning(
            "command %d of session %s outlived its worker and is now process %s: %s",
            program.pid,
            process.session_id,
            process.id,
            process.command,
        )
        return process


def _register(tx: Transaction, planned: Process, program: Program) -> Process:
    """Register the program as a process, unless a worker that died in between already has."""
    for known in processes.list_by_session(tx, planned.session_id):
        if known.ended_at is None and (known.pid, known.process_started) == (program.pid, program.started):
            return known
    processes.add(tx, planned)
    processes.identify(tx, planned.id, program.pid, program.started)
    return processes.get(tx, planned.id)
