"""Pytest plugin for the suite of openai-agents: its SQLiteSession becomes HoldfastSession, in the store of the settings."""

import itertools
from pathlib import Path
from typing import Any

import agents
import agents.memory
import agents.memory.sqlite_session

from holdfast.adapters.openai_agents import HoldfastSession

number = itertools.count()


class SubstitutedSession(HoldfastSession):
    def __init__(self, session_id: str, db_path: str | Path = ":memory:", session_settings: Any = None) -> None:
        place = f"memory-{next(number)}" if str(db_path) == ":memory:" else str(db_path)
        super().__init__(f"{place}:{session_id}", session_settings=session_settings)
        self.session_id = session_id


for module in (agents, agents.memory, agents.memory.sqlite_session):
    module.SQLiteSession = SubstitutedSession  # type: ignore[attr-defined]
