"""Read the remembered facts of a session, and find the project that it is in."""

import asyncio
from collections.abc import Callable
from functools import lru_cache
from pathlib import Path

import msgspec

from holdfast.engine.turn.memory_call import TOOLS
from holdfast.instructions.memory import load_memory
from holdfast.instructions.rules import project_root
from holdfast.model.instructions import InstructionsRequest, LoadedPart
from holdfast.model.memory.owner import MemoryPlace
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


def find_project(home: Path, workdir: Callable[[], Path], terminal: str) -> str:
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
    names = [spec.name for spec in toolbox.specs]
    return toolbox.only([name for name in names if name not in TOOLS])
