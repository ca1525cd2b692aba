"""Choose what the model is told in a session besides the conversation."""

import asyncio
from collections.abc import Callable, Iterator
from datetime import tzinfo
from pathlib import Path

import msgspec

from holdfast.engine.context.tokens import BYTES_PER_TOKEN
from holdfast.instructions.environment import describe_environment
from holdfast.instructions.rules import MAX_TOTAL, load_rules
from holdfast.model.event import InstructionsLoaded
from holdfast.model.instructions import InstructionsRequest, LoadedPart, LoadInstructions, changed_parts
from holdfast.model.times import Clock, moment
from holdfast.settings import Settings

SHARE = 8
"""The rules may take the window divided by this."""


class InstructedSession(msgspec.Struct, frozen=True, kw_only=True):
    """What the instructions of a session depend on."""

    source: str
    system: str
    """The built-in system text, or the configured one."""
    workdir: Callable[[], Path]
    terminal: str
    window: int


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
        self._limit = min(MAX_TOTAL, session.window * BYTES_PER_TOKEN // SHARE)
        self._has_rules = session.source in settings.agent.rules
        self._has_environment = session.source in settings.agent.environment

    @property
    def loader(self) -> LoadInstructions | None:
        """The function that loads them; None if the session has none, so that its turns do no work for it."""
        return self.load if self._has_rules or self._has_environment else None

    async def load(self, request: InstructionsRequest) -> list[InstructionsLoaded]:
        """The events of the parts that have changed. Files are read in a thread, and only for the configured sources."""
        if self._has_rules:
            loaded = await asyncio.to_thread(lambda: list(self._parts(request)))
        else:
            loaded = list(self._parts(request))
        return changed_parts(request.turn_id, request.recorded, loaded)

    def _parts(self, request: InstructionsRequest) -> Iterator[LoadedPart]:
        session = self._session
        if not request.has_own_system:
            yield LoadedPart(part="system", text=session.system)
        workdir = session.workdir() if self._has_rules else None
        if self._has_rules:
            project = workdir if session.terminal != "ssh" else None
            yield load_rules(project, self._settings.home, request.recorded.get("rules"), limit=self._limit)
        if self._has_environment and (self._has_rules or not request.has_own_system):
            now = moment(self._clock.now()).astimezone(self._zone())
            yield describe_environment(now, workdir, session.terminal)
        else:
            yield LoadedPart(part="environment", text="")
