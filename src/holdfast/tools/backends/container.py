"""The backend `container`: one container per session, which outlives the worker.

A container is created, recorded in the session's log with the hash of its settings, and only then started. Its name
contains the id of the session, so an engine never has two for one session:

| found before a command | done |
|---|---|
| recorded, running | used |
| recorded, stopped | started, and recorded as restarted: programs and files in memory are gone |
| recorded, but it does not exist, is on another machine, or its start was cut off | recorded as lost; a new one is created |
| recorded with other settings | removed; a new one is created |
| not recorded, but one with its name and settings exists | recorded: a worker died after creating it |
| recorded as lost or removed, but it exists | removed; a new one is created |

The janitor removes the containers of ended sessions, and those that no session refers to (`remove_unused`). The model is
told of a loss or a restart by the session's log.
"""

import asyncio
import hashlib
import json
import logging
import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from weakref import WeakValueDictionary

from holdfast.model.errors import Invalid, NotFound, Unavailable
from holdfast.model.process_identity import Identity
from holdfast.model.times import Clock
from holdfast.model.tool import ToolContext
from holdfast.settings import ContainerSettings
from holdfast.store import durable_file
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import containers, meta, sessions
from holdfast.store.repos.containers import Container
from holdfast.tools.backends import relay
from holdfast.tools.backends.container_engine import (
    KEEP_ALIVE,
    LABEL,
    ContainerEngine,
    FoundContainer,
    check_settings,
    create_arguments,
    find_engine,
)
from holdfast.tools.backends.port import Completed
from holdfast.tools.backends.secret_paths import find_secret_files, find_secret_folders
from holdfast.tools.sandbox import file_id

logger = logging.getLogger(__name__)
EMPTY = "empty"
"""The folder in the home with empty directories, which hide others in containers."""
NAME_TRIES, NAME_SECONDS = 10, 0.5
"""How often and how long to wait for a container whose name the engine has reserved."""
HALF_STARTED = "ID already exists"
"""What runc and crun answer if a start was cut off: they know the container, and the engine does not know that."""
STOPPED = "it had stopped; programs that ran in it and files in memory are gone"


class ContainerBackend:
    name = "container"
    is_direct = False
    shares_files = False

    def __init__(
        self,
        database: Database,
        clock: Clock,
        ours: Identity,
        settings: ContainerSettings,
        environment: Mapping[str, str],
        home: Path,
        *,
        hidden_files: Sequence[Path] = (),
    ) -> None:
        check_settings(settings, home)
        self._database = database
        self._clock = clock
        self._home = home
        self._home_id = file_id(home)
        self._hidden_files = hidden_files
        """Files of the store outside the home."""
        self._host = ours.host
        self._settings = settings
        self._environment = environment
        self._locks: WeakValueDictionary[str, asyncio.Lock] = WeakValueDictionary()
        self._ids: dict[str, str] = {}
        """The containers of sessions that were prepared."""

    def workdir(self, context: ToolContext) -> Path:
        return Path(os.path.realpath(context.workdir))

    async def prepare(self, context: ToolContext) -> None:
        async with self._locks.setdefault(context.session_id, asyncio.Lock()):
            self._ids[context.session_id] = (await self._attach(context)).id

    def _engine(self) -> ContainerEngine:
        return find_engine(self._settings, self._environment)

    async def _attach(self, context: ToolContext) -> Container:
        """The running container of the session."""
        engine = self._engine()
        try:
            arguments = [*create_arguments(self._settings, self._binds(context)), *self._hiding(context)]
        except Invalid as e:
            raise Unavailable(str(e)) from e
        wanted = _hash([*arguments, self._settings.image or ""])
        current = await self._database.read(containers.get_current, context.session_id)
        if current is not None and await self._is_usable(engine, current, wanted):
            return current
        container = await self._create(engine, context, arguments, wanted)
        await engine.start(container.id, self._home)
        return container

    async def _is_usable(self, engine: ContainerEngine, current: Container, wanted: str) -> bool:
        """Whether the recorded container runs now. If not, its end is recorded."""
        at = self._clock.now()
        if current.host != self._host:
            await self._database.write(containers.record_loss, current, f"it is on {current.host}", at=at)
            return False
        found = await engine.find(current.id)
        if not found:
            await self._database.write(containers.record_loss, current, "it no longer exists", at=at)
            return False
        if current.settings_hash != wanted:
            await self._database.write(containers.record_removal, current, "the settings changed", at=at)
            await engine.remove(current.id)
            return False
        if not found[0].is_running:
            await self._database.write(containers.record_restart, current, STOPPED, at=at)
            return await self._start_again(engine, current)
        return True

    async def _start_again(self, engine: ContainerEngine, current: Container) -> bool:
        """Start a container that had stopped. False if it was lost, because the engine was killed while it started it."""
        try:
            await engine.start(current.id, self._home)
        except Unavailable as e:
            if HALF_STARTED not in str(e):
                raise
            reason = "the engine was killed while it started it"
            await self._database.write(containers.record_loss, current, reason, at=self._clock.now())
            await engine.remove(current.id)
            return False
        return True

    async def _create(
        self, engine: ContainerEngine, context: ToolContext, arguments: Sequence[str], wanted: str
    ) -> Container:
        """Create the container and record it. One that a dead worker created and did not record is used."""
        store_id = await self._database.read(meta.get_store_id)
        name = f"{LABEL}-{hashlib.sha256(store_id.encode()).hexdigest()[:8]}-{context.session_id}"
        found = next(iter(await engine.find(name)), None)
        if found is not None and not await self._can_adopt(found, wanted):
            await engine.remove(found.id)
            found = None
        if found is None:
            labels = {"store": store_id, "session": context.session_id, "settings": wanted}
            marks = [f"--label={LABEL}.{key}={value}" for key, value in labels.items()]
            command = [f"--name={name}", *marks, *arguments, self._settings.image or "", "sh", "-c", KEEP_ALIVE]
            container_id = await self._create_named(engine, name, wanted, command)
        else:
            container_id = found.id
        container = Container(
            id=container_id,
            session_id=context.session_id,
            name=name,
            image=self._settings.image or "",
            engine=engine.program,
            settings_hash=wanted,
            host=self._host,
            created_at=self._clock.now(),
        )
        return await self._database.write(_record, container)

    async def _can_adopt(self, found: FoundContainer, wanted: str) -> bool:
        """Whether a container with the name of the session's is as wanted, and its end is not recorded."""
        return found.settings_hash == wanted and not await self._database.read(containers.has_ended, found.id)

    async def _create_named(self, engine: ContainerEngine, name: str, wanted: str, command: Sequence[str]) -> str:
        """Create a container; returns its id. Raises Unavailable.

        The engine may still be creating the one of a worker that died, which is then used. If the engine was killed as
        well, the name stays reserved without a container until it is removed.
        """
        try:
            return await engine.create(command)
        except Unavailable as e:
            if "in use" not in str(e):
                raise
        for _ in range(NAME_TRIES):
            found = next(iter(await engine.find(name)), None)
            if found is not None and await self._can_adopt(found, wanted):
                return found.id
            await asyncio.sleep(NAME_SECONDS)
        await engine.remove(name)
        return await engine.create(command)

    def _binds(self, context: ToolContext) -> list[str]:
        """The session's own directories, at the same paths as on this machine. Raises Invalid."""
        workdir, files = self.workdir(context), Path(os.path.realpath(context.files))
        if ":" in f"{workdir}{files}":
            raise Invalid(f"{workdir} cannot be the working directory of a container: its path contains a colon")
        files.mkdir(mode=0o700, parents=True, exist_ok=True)
        return [f"{workdir}:{workdir}", f"{files}:{files}:ro"]

    def _hiding(self, context: ToolContext) -> list[str]:
        """The options that hide Holdfast's home and the user's secrets if they are in the working directory. Raises Invalid."""
        if file_id(self._home) != self._home_id:
            raise Invalid(f"{self._home} was moved or replaced, so it cannot be hidden; restart Holdfast")
        workdir, home = self.workdir(context), Path(os.path.realpath(self._home))
        user_home = Path(self._environment.get("HOME") or "/")
        folders = [path for path in (str(home), *find_secret_folders(user_home)) if _is_inside(path, workdir)]
        store_files = (os.path.realpath(path) for path in self._hidden_files)
        files = [path for path in (*find_secret_files(user_home), *store_files) if _is_inside(path, workdir)]
        empty = home / EMPTY / context.session_id
        if folders:
            # Not a tmpfs: Podman copies what is below into it. The session's own files are mounted in the empty home.
            mount_point = Path(os.path.realpath(context.files)).relative_to(home)
            durable_file.make_folders(empty / mount_point, mode=0o700)
        return [
            *(f"--volume={empty}:{path}:ro" for path in folders),
            *(f"--volume=/dev/null:{path}:ro" for path in files),
        ]

    def prefix(self, context: ToolContext, workdir: Path, *, background: bool) -> tuple[str, ...]:
        words = list(self._exec(context))
        spec = {"command": words, "control": words, "workdir": str(workdir)}
        return (sys.executable, "-I", "-S", relay.__file__, json.dumps(spec))

    def _exec(self, context: ToolContext) -> tuple[str, ...]:
        return self._engine().words("exec", "--interactive", self._ids[context.session_id])

    async def run(self, context: ToolContext, words: Sequence[str], data: bytes = b"") -> Completed:
        await self.prepare(context)
        engine = self._engine()
        return await engine.run("exec", "--interactive", self._ids[context.session_id], *words, data=data)

    async def remove_unused(self) -> list[tuple[str, str]]:
        """Remove the containers of this machine that no session needs. Returns the session and what was done for each.

        A container of an open session that is not recorded is kept: a worker may be about to record it.
        """
        recorded = await self._database.read(containers.list_current, self._host)
        if self._settings.image is None and not recorded:
            return []
        engine = self._engine()
        store_id = await self._database.read(meta.get_store_id)
        existing = {one.id: one for one in await engine.list(store_id)}
        done = [await self._end_recorded(engine, one, ended, existing) for one, ended in recorded]
        known = {one.id for one, _ in recorded}
        done += [await self._remove_unknown(engine, one) for one in existing.values() if one.id not in known]
        return [one for one in done if one is not None]

    async def _end_recorded(
        self, engine: ContainerEngine, container: Container, ended: bool, existing: Mapping[str, FoundContainer]
    ) -> tuple[str, str] | None:
        at = self._clock.now()
        if ended:
            if not await self._database.write(_record_end, container, at=at):
                return None
            await engine.remove(container.id)
            return container.session_id, f"container {container.id[:12]} removed: the session has ended"
        if container.id not in existing:
            await self._database.write(containers.record_loss, container, "it no longer exists", at=at)
            return container.session_id, f"container {container.id[:12]} was lost: it no longer exists"
        return None

    async def _remove_unknown(self, engine: ContainerEngine, found: FoundContainer) -> tuple[str, str] | None:
        if await self._database.read(_may_record, found.session_id, found.id):
            return None
        await engine.remove(found.id)
        logger.warning("container %s of session %s was removed: no session refers to it", found.id, found.session_id)
        return found.session_id, f"container {found.id[:12]} removed: no session refers to it"


def _record(tx: Transaction, container: Container) -> Container:
    """Record the container of a session, unless another worker has just done so."""
    current = containers.get_current(tx, container.session_id)
    if current is None:
        containers.add(tx, container)
    return current or container


def _record_end(tx: Transaction, container: Container, *, at: int) -> bool:
    """Record the removal of the container, unless its session was continued meanwhile."""
    return not _is_open(tx, container.session_id) and containers.record_removal(
        tx, container, "the session has ended", at=at
    )


def _may_record(tx: Transaction, session_id: str, container_id: str) -> bool:
    """Whether a worker may be about to record this container for the session, or has just done so."""
    current = containers.get_current(tx, session_id)
    return _is_open(tx, session_id) and (current is None or current.id == container_id)


def _is_open(tx: Transaction, session_id: str) -> bool:
    try:
        summary = sessions.get(tx, session_id).summary
    except NotFound:
        return False
    return summary.ended_at is None and summary.trashed_at is None


def _is_inside(path: str, workdir: Path) -> bool:
    return Path(path) != workdir and Path(path).is_relative_to(workdir) and Path(path).exists()


def _hash(words: Sequence[str]) -> str:
    return hashlib.sha256(json.dumps(list(words)).encode()).hexdigest()[:16]
