"""Chooses the settings of a session's turns."""

from collections.abc import Callable
from datetime import tzinfo
from functools import cache, lru_cache, partial
from pathlib import Path

import msgspec

from holdfast.clock import load_zone
from holdfast.engine.compaction.compact import CompactionSettings
from holdfast.engine.spending.meter import Meter
from holdfast.engine.turn.call_host import CallModelSettings
from holdfast.engine.turn.loop import GoalCheckSettings, TurnSettings
from holdfast.engine.turn.model_call import ModelCallSettings
from holdfast.engine.turn.tool_call import ToolCallSettings
from holdfast.model.delegation import delegation_of
from holdfast.model.event import Delegation, Event
from holdfast.model.session import Session
from holdfast.model.times import Clock
from holdfast.providers.router import ModelRouter
from holdfast.settings import Settings
from holdfast.store.database import Database
from holdfast.tools.toolbox import Toolbox
from holdfast.wiring.compaction import compaction_settings
from holdfast.wiring.instructions import InstructedSession, SessionInstructions, with_skills
from holdfast.wiring.memory import StoredMemory
from holdfast.wiring.tools import ATTENDED_SOURCES, SessionTools, tool_call_settings

SYSTEM_PROMPT = Path(__file__).parents[1] / "engine" / "context" / "system.md"
SessionToolbox = Callable[[str, Toolbox], Toolbox]
"""Returns the tools of a session, by its id, given those of all sessions."""
KNOWN_MODELS = 64
"""Models whose settings are kept: clients may name any."""


class TurnParts(msgspec.Struct, frozen=True, kw_only=True):
    """What the turns of a worker are made of."""

    database: Database
    settings: Settings
    models: ModelRouter
    meter: Meter
    tools: SessionTools
    session_tools: SessionToolbox | None
    clock: Clock
    tz: str
    """The variable TZ."""
    attended: bool
    """Whether a person answers questions in place."""


class TurnPreparation:
    """One per worker. Call it with a session and the event that opened it."""

    def __init__(self, parts: TurnParts) -> None:
        settings = parts.settings
        self._parts = parts
        self._system = settings.agent.system or SYSTEM_PROMPT.read_text("utf-8")
        self._compaction: Callable[[str], CompactionSettings] = lru_cache(KNOWN_MODELS)(
            partial(compaction_settings, settings, parts.models)
        )
        self._zone = cache(partial(_zone_for_dates, settings.reset.timezone, parts.tz))

    def __call__(self, session: Session, opened: Event) -> TurnSettings:
        """The settings of the session's turns. They depend on its model."""
        settings, meter, ask = self._parts.settings, self._parts.meter, self._parts.models.ask
        model, link = session.summary.model or settings.model, delegation_of(session, opened)
        compaction = self._compaction(model)
        tool_call = self._tool_call(session, opened, link, compaction.window)
        return TurnSettings(
            model_call=ModelCallSettings(
                model=model,
                system=self._system,
                ask=ask,
                step_seconds=settings.agent.step_seconds,
                meter=meter,
                has_limits=meter.limits.are_set,
                can_ask=self._parts.attended and settings.agent.approvals != "deny" and _is_operators(session, link),
            ),
            tool_call=tool_call,
            max_steps=min(link.max_steps or settings.agent.max_steps, settings.agent.max_steps),
            turn_seconds=settings.agent.turn_seconds,
            compaction=compaction,
            max_tokens=link.max_tokens,
            instructions=self._instructions(session, tool_call, compaction.window).loader,
            goal_check=GoalCheckSettings(settings.goals.check_model or model, ask, settings.goals.check_attempts),
        )

    def _tool_call(self, session: Session, opened: Event, link: Delegation, window: int) -> ToolCallSettings:
        parts, settings = self._parts, self._parts.settings
        toolbox = parts.tools.toolbox
        if session.summary.source in settings.agent.rules:
            toolbox = with_skills(toolbox, settings.home, window)
        if parts.session_tools is not None:
            toolbox = parts.session_tools(link.root_id or session.id, toolbox)
        tools = msgspec.structs.replace(parts.tools, toolbox=toolbox)
        model = session.summary.model or settings.model
        return msgspec.structs.replace(
            tool_call_settings(session, opened, tools, settings, attended=parts.attended),
            model=CallModelSettings(model, parts.models.ask, settings.agent.step_seconds, parts.meter),
        )

    def _instructions(self, session: Session, tool_call: ToolCallSettings, window: int) -> SessionInstructions:
        memory, parts = tool_call.memory, self._parts
        instructed = InstructedSession(
            source=session.summary.source,
            system=self._system,
            workdir=tool_call.workdir,
            terminal=tool_call.terminal,
            window=window,
            memory=None if memory is None else StoredMemory(parts.database, memory.project),
        )
        return SessionInstructions(parts.settings, parts.clock, self._zone, instructed)


def _is_operators(session: Session, link: Delegation) -> bool:
    """Return whether the operator works in the session, or in the one that delegated to it: not the user of a platform."""
    return (link.root_source or session.summary.source) not in ATTENDED_SOURCES


def _zone_for_dates(name: str, tz: str) -> tzinfo | None:
    """Return the time zone of dates for the model; None for the machine's, because time zones load slowly."""
    return None if name == "local" else load_zone(name, tz)
