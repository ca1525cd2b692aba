"""Decide which sessions have a memory, and in which project they are."""

import asyncio
from collections.abc import Callable
from functools import lru_cache, partial
from pathlib import Path

import msgspec

from holdfast.engine.turn.memory_call import TOOLS, MemorySettings
from holdfast.instructions.memory import load_memory
from holdfast.instructions.rules import project_root
from holdfast.model.delegation import delegation_of
from holdfast.model.event import Event
from holdfast.model.instructions import InstructionsRequest, LoadedPart
from holdfast.model.memory.owner import MemoryPlace
from holdfast.model.session import Session
from holdfast.settings import Settings
from holdfast.store.database import Database
from holdfast.store.repos import memory
from holdfast.tools.toolbox import Toolbox


class StoredMemory(msgspec.Struct, frozen=True):
    """The remembered facts of the store. `project` returns the root of the session's project."""

    database: Database
    project: Callable[[], str]

    async def load(self, request: InstructionsRequest, limit: int) -> LoadedPart:
        """The facts for the turn; none in a turn without an owner."""
        if not request.memory_owner:
            return load_memory((), request, limit=limit)
        place = MemoryPlace(request.memory_owner, await asyncio.to_thread(self.project))
        return load_memory(await self.database.read(memory.list_visible, place), request, limit=limit)


def memory_settings(
    session: Session, opened: Event, settings: Settings, workdir: Callable[[], Path], terminal: str
) -> MemorySettings | None:
    """Return the memory of a session; None for sources without one, and for side sessions.

    A sub-agent has a memory if the session at the top of its tree has one.
    """
    link = delegation_of(session, opened)
    source = link.root_source or session.summary.source
    if source not in settings.agent.memory or session.summary.side_of is not None:
        return None
    return MemorySettings(partial(_project, settings.home, workdir, terminal))


def _project(home: Path, workdir: Callable[[], Path], terminal: str) -> str:
    """Return the root of the session's project. Its own directory in the home is none, nor is one on another machine."""
    return "" if terminal == "ssh" else project_of(workdir(), home)


def project_of(workdir: Path, home: Path) -> str:
    """Return the project of a directory: the root of its repository, or the directory itself; empty in Holdfast's home."""
    folder = workdir.absolute().resolve()
    if folder.is_relative_to(home.resolve()):
        return ""
    found = str(project_root(folder))
    return found if found.isprintable() else ""


@lru_cache(maxsize=8)
def without_memory(toolbox: Toolbox) -> Toolbox:
    """Return the tools for a session without a memory."""
    names = [spec.name for spec in toolbox.specs()]
    return toolbox.only([name for name in names if name not in TOOLS])
