"""Choose what the model is told in a session besides the conversation."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import tzinfo
from pathlib import Path

import msgspec

from holdfast.engine.context.tokens import BYTES_PER_TOKEN
from holdfast.instructions.environment import describe_environment
from holdfast.instructions.memory import MAX_TOTAL as MAX_MEMORY
from holdfast.instructions.rules import MAX_TOTAL, load_rules
from holdfast.instructions.skill_loading import skill_loader
from holdfast.instructions.skills import MAX_LISTING, load_skills
from holdfast.model.event import InstructionsLoaded
from holdfast.model.instructions import InstructionsRequest, LoadedPart, LoadInstructions, changed_parts
from holdfast.model.times import Clock, moment
from holdfast.settings import Settings
from holdfast.tools.skill import MAX_BODY, SkillTool
from holdfast.tools.toolbox import Toolbox
from holdfast.wiring.memory import StoredMemory

SHARE = 8
"""The rules may take the window divided by this."""
SKILL_SHARE = 16
"""The same for the list of skills."""
MEMORY_SHARE = 16
"""The same for remembered facts."""


def with_skills(toolbox: Toolbox, home: Path, window: int) -> Toolbox:
    """Return the tools and the one that loads skills, whose texts may take a quarter of the window."""
    return toolbox.with_tools([SkillTool(skill_loader(home), min(MAX_BODY, window * BYTES_PER_TOKEN // 4))])


class InstructedSession(msgspec.Struct, frozen=True, kw_only=True):
    """What the instructions of a session depend on."""

    source: str
    system: str
    """The built-in system text, or the configured one."""
    workdir: Callable[[], Path]
    terminal: str
    window: int
    memory: StoredMemory | None = None


class SessionInstructions:
    """Loads the instructions of one session."""

    def __init__(
        self,
        settings: Settings,
        clock: Clock,
        zone: Callable[[], tzinfo | None],
        session: InstructedSession,
    ) -> None:
        self._settings = settings
        self._clock = clock
        self._zone = zone
        self._session = session
        chars = session.window * BYTES_PER_TOKEN
        self._limit = min(MAX_TOTAL, chars // SHARE)
        self._skill_limit = min(MAX_LISTING, chars // SKILL_SHARE)
        self._memory_limit = min(MAX_MEMORY, chars // MEMORY_SHARE)
        self._has_rules = session.source in settings.agent.rules
        self._has_environment = session.source in settings.agent.environment

    @property
    def loader(self) -> LoadInstructions | None:
        """The function that loads them; None if the session has none, so that its turns do no work for it."""
        has_any = self._has_rules or self._has_environment or self._session.memory is not None
        return self.load if has_any else None

    async def load(self, request: InstructionsRequest) -> list[InstructionsLoaded]:
        """The events of the parts that have changed. Files are read in a thread, and only for the configured sources."""
        if self._has_rules:
            loaded = await asyncio.to_thread(lambda: list(self._parts(request)))
        else:
            loaded = list(self._parts(request))
        if self._session.memory is not None:
            loaded.append(await self._session.memory.load(request, self._memory_limit))
        return changed_parts(request.turn_id, request.recorded, loaded)

    def _parts(self, request: InstructionsRequest) -> Iterator[LoadedPart]:
        session = self._session
        if not request.has_own_system:
            yield LoadedPart(part="system", text=session.system)
        workdir = session.workdir() if self._has_rules else None
        if self._has_rules:
            project = workdir if session.terminal != "ssh" else None
            home, recorded = self._settings.home, request.recorded
            yield load_rules(project, home, recorded.get("rules"), limit=self._limit)
            yield load_skills(project, home, recorded.get("skills"), limit=self._skill_limit)
        if self._has_environment and (self._has_rules or not request.has_own_system):
            now = moment(self._clock.now()).astimezone(self._zone())
            yield describe_environment(now, workdir, session.terminal)
        else:
            yield LoadedPart(part="environment", text="")
