"""A worker whose model delegates as its instructions say, on any store.

The text of a message says what its session does: `do X` replies that X is done; `hang` never replies; a JSON list makes the
parent call `delegate` once for each object in it, and then reply with all results and notes.
"""

import asyncio
import json
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from holdfast.engine.delegation.create import DelegationLimits
from holdfast.engine.spending.meter import SpendingLimits
from holdfast.model.errors import Busy
from holdfast.model.event import ChildEnded, Event, ToolEnded
from holdfast.model.message import Text, ToolCall, ToolResult, text_of
from holdfast.model.provider import AskModel, Delta, ModelReply, ModelRequest, TextDelta
from holdfast.model.session import Session
from holdfast.model.tool import Tool
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import delegations, ownership, session_list, sessions
from holdfast.tasks import running
from holdfast.tools.delegate import DelegateTool
from tests.engine.stage import Stage, set_up

LIMITS = DelegationLimits(max_depth=2, max_children=200, seconds=600)


@dataclass
class Family:
    """One worker with its delegation task."""

    stage: Stage

    async def parent(self, **opening: Any) -> str:
        return (await self.stage.session(**opening)).id

    async def delegate(self, parent_id: str, *calls: dict[str, Any]) -> list[Event]:
        return await self.stage.play(parent_id, json.dumps(calls))

    async def children(self, parent_id: str) -> list[delegations.DelegationRecord]:
        return await self.stage.database.read(delegations.list_children, parent_id)

    async def session(self, session_id: str) -> Session:
        return await self.stage.database.read(sessions.get, session_id)

    async def until_ended(self, child_id: str) -> None:
        async for _ in self.stage.database.listen(child_id):
            record = await self.stage.database.read(delegations.get, child_id)
            if record is not None and record.ended_at is not None:
                return

    async def end(self, session_id: str) -> None:
        """End a session as soon as no completion of a child keeps it busy."""
        while True:
            try:
                await self.stage.engine.actions.end(session_id)
            except Busy:
                await asyncio.sleep(0.01)
            else:
                return

    async def is_busy(self) -> bool:
        """Whether a session runs, waits for a worker, or has a running child."""
        return await self.stage.database.read(_has_work)

    async def quiet(self) -> None:
        """Wait until every completion has arrived and nothing runs."""
        while await self.is_busy():
            await self.stage.engine.settled()
            await asyncio.sleep(0.01)
        await self.stage.engine.settled()

    async def completions(self, parent_id: str) -> list[str]:
        """The id of the child of every completion in the parent's log: results of calls, and events."""
        log = await self.stage.log(parent_id)
        return completions_in(log)


def _has_work(tx: Transaction) -> bool:
    at_work = [one for one in session_list.list_in_use(tx, 500) if one.lease_worker or one.summary.open_turn]
    return bool(at_work or ownership.list_unclaimed_input(tx) or delegations.get_next_deadline(tx))


def completions_in(log: Sequence[Event]) -> list[str]:
    found = [event.child_id for event in log if isinstance(event, ChildEnded)]
    for event in log:
        if isinstance(event, ToolEnded) and event.name == "delegate" and event.outcome != "unknown":
            words = text_of(event.parts).split()
            if words[:1] == ["Sub-agent"] and "started." not in words:
                found.append(words[1])
    return found


async def answer(request: ModelRequest) -> AsyncIterator[Delta | ModelReply]:
    """Play the instructions of the newest message of the user, or report once its calls have returned."""
    latest = request.messages[-1]
    asked = next(m for m in reversed(request.messages) if m.role == "user" and not m.text.startswith("[Note"))
    words = asked.text.partition("\n\n[You are a sub-agent")[0]
    if words == "hang":
        await asyncio.Event().wait()
    if latest is asked and words.startswith("["):
        calls = json.loads(words)
        parts = tuple(ToolCall(f"call-{asked.seq}-{n}", "delegate", json.dumps(call)) for n, call in enumerate(calls))
        yield ModelReply(parts=parts, model="play", finish="stop")
        return
    if latest is asked and words.startswith("use "):
        name, _, arguments = words.removeprefix("use ").partition(" ")
        yield ModelReply(parts=(ToolCall(f"call-{asked.seq}", name, arguments or "{}"),), model="play", finish="stop")
        return
    said = f"done: {words}" if latest is asked else f"heard: {_heard(latest)}"
    yield TextDelta(said)
    yield ModelReply(parts=(Text(said),), model="play", finish="stop")


def _heard(latest: Any) -> str:
    results = [text_of(part.parts) for part in latest.parts if isinstance(part, ToolResult)]
    return " | ".join(results) or latest.text


@asynccontextmanager
async def family(
    folder: Path,
    *,
    database: Database | None = None,
    limits: DelegationLimits = LIMITS,
    watches: bool = True,
    tools: Sequence[Tool] = (),
    ask: AskModel = answer,
    spending: SpendingLimits | None = None,
    **options: Any,
) -> AsyncIterator[Family]:
    """A worker that serves delegated work, unless it `watches` nothing. It closes as a worker that shuts down."""
    stage = await set_up(
        folder,
        ask=ask,
        tools=[DelegateTool(), *tools],
        delegation=limits,
        database=database,
        limits=spending,
        **options,
    )  # type: ignore[arg-type]
    async with running(*([stage.engine.delegation.work()] if watches else [])):
        yield Family(stage)
        await stage.engine.close()
    if database is None:
        await stage.database.close()
