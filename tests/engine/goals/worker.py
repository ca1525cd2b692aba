"""A worker with its goal task, and a model that works and checks as the goal says.

The goal `reach N` is reached after N turns. A check of the goal `say X` answers X, and one of `break` fails.
"""

import asyncio
import json
import re
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from holdfast.engine.goals.actions import GoalChanges, first_message
from holdfast.engine.goals.check import SYSTEM
from holdfast.engine.submission import NewMessage
from holdfast.model.errors import ProviderFailed
from holdfast.model.event import Event, GoalChecked, TurnEnded
from holdfast.model.goal import Goal
from holdfast.model.message import Text
from holdfast.model.provider import Delta, ModelReply, ModelRequest, TextDelta
from holdfast.model.session import Session
from holdfast.store.database import Database
from holdfast.store.repos import goals, sessions
from holdfast.tasks import running
from tests.engine.stage import Stage, set_up

REACH = re.compile(r"reach (\d+)")


@dataclass
class Script:
    """What the model does besides what the goals say."""

    checks: int = 0
    holds_check: asyncio.Event = field(default_factory=asyncio.Event)
    """Checks wait for it."""
    checking: asyncio.Event = field(default_factory=asyncio.Event)
    holds_turn: asyncio.Event = field(default_factory=asyncio.Event)
    """Turns of `slow` goals wait for it."""

    def __post_init__(self) -> None:
        self.holds_check.set()

    async def ask(self, request: ModelRequest) -> AsyncIterator[Delta | ModelReply]:
        text = request.messages[-1].text
        if request.system == SYSTEM:
            self.checks += 1
            self.checking.set()
            await self.holds_check.wait()
            said = verdict(text)
        else:
            if "slow" in text:
                await self.holds_turn.wait()
            if "fail" in text:
                raise ProviderFailed("the provider is closed")
            said = f"worked on: {text[:40]}"
        yield TextDelta(said)
        yield ModelReply(parts=(Text(said),), model="play", finish="stop")


def verdict(prompt: str) -> str:
    goal = prompt.partition("The goal:\n")[2].partition("\n\n")[0]
    if goal.startswith("say "):
        return goal.removeprefix("say ")
    if goal.startswith("break"):
        raise ProviderFailed("the checker is away")
    wanted = REACH.search(goal)
    taken = re.search(r"has taken (\d+) of", prompt)
    done = wanted is not None and taken is not None and int(taken[1]) >= int(wanted[1])
    return json.dumps({"decision": "done" if done else "continue", "reason": "as counted", "evidence": "the turns"})


@dataclass
class GoalWorker:
    """One worker that serves goals."""

    stage: Stage
    script: Script

    async def session(self, **opening: Any) -> str:
        return (await self.stage.session(**opening)).id

    async def set(self, session_id: str, text: str, **changes: Any) -> None:
        """Set a goal, and return once it is durable."""
        engine = self.stage.engine
        planned = await engine.goals.plan(session_id, text, by="test", changes=GoalChanges(**changes))
        await engine.submit(NewMessage(session_id, first_message(planned), goal=planned))

    async def goal(self, session_id: str) -> Goal:
        found = await self.stage.database.read(goals.get, session_id)
        assert found is not None
        return found

    async def read(self, session_id: str) -> Session:
        return await self.stage.database.read(sessions.get, session_id)

    async def until(self, session_id: str, *states: str) -> Goal:
        """Wait until the goal is in one of these states and nothing runs."""
        async with asyncio.timeout(30):
            async for _ in self.stage.database.listen(session_id):
                found = await self.stage.database.read(goals.get, session_id)
                session = await self.read(session_id)
                if found is not None and found.state in states and session.lease_worker is None:
                    return found
        raise AssertionError("the store was closed")

    async def turns(self, session_id: str) -> list[str]:
        return [event.outcome for event in await self.stage.log(session_id) if isinstance(event, TurnEnded)]

    async def decisions(self, session_id: str) -> list[str]:
        return decisions_in(await self.stage.log(session_id))


def decisions_in(log: list[Event]) -> list[str]:
    return [event.decision for event in log if isinstance(event, GoalChecked)]


@asynccontextmanager
async def goal_worker(
    folder: Path,
    *,
    database: Database | None = None,
    watches: bool = True,
    script: Script | None = None,
    **options: Any,
) -> AsyncIterator[GoalWorker]:
    """A worker that serves goals, unless it `watches` nothing. It closes as a worker that shuts down."""
    script = script or Script()
    stage = await set_up(folder, ask=script.ask, database=database, **options)  # type: ignore[arg-type]
    async with running(*([stage.engine.goal_watch.work()] if watches else [])):
        yield GoalWorker(stage, script)
        await stage.engine.close()
    if database is None:
        await stage.database.close()
