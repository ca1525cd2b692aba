"""Holdfast inside another Python program: `async with holdfast.open() as hf`."""

from collections.abc import AsyncIterator
from contextlib import aclosing, asynccontextmanager
from pathlib import Path
from typing import get_args

import msgspec

from holdfast import config
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.engine import Engine
from holdfast.engine.goals.actions import GoalChanges, first_message
from holdfast.engine.goals.follow import follow_goal
from holdfast.engine.streaming.bus import LiveText, TurnBroke
from holdfast.engine.submission import NewMessage
from holdfast.model.answer import Answer
from holdfast.model.approval import Match, Scope
from holdfast.model.entry import Entry
from holdfast.model.errors import Invalid
from holdfast.model.event import ApprovalAnswered, Compacted, CompactionFailed, CompactionUndone
from holdfast.model.goal import Goal
from holdfast.model.memory.fact import Fact, NewFact, parse_fact_id
from holdfast.model.memory.owner import LOCAL_OWNER, MemoryPlace
from holdfast.model.message import Content, Message
from holdfast.model.session import messages
from holdfast.providers import registry
from holdfast.settings import Settings, TerminalName
from holdfast.store.repos import approvals, memory
from holdfast.store.repos.approvals import Approval
from holdfast.store.repos.input_queue import InputMode
from holdfast.store.repos.memory import FactFilter
from holdfast.wiring.engine import open_engine
from holdfast.wiring.store import open_app

BY = "library"
"""The caller of its messages, and who did what it does."""
CHANNEL = "key:"
"""Prefix of the channels of keyed sessions, shared with `holdfast run --key`: the same key opens the same session."""


class Holdfast:
    """An open store with a worker in this process."""

    def __init__(self, engine: Engine, settings: Settings) -> None:
        self.engine = engine
        self._settings = settings
        self.memory = LibraryMemory(engine)

    async def session(
        self,
        ref: str | None = None,
        *,
        key: str | None = None,
        title: str | None = None,
        model: str | None = None,
        system: str | None = None,
        workdir: Path | None = None,
        terminal: TerminalName | None = None,
    ) -> "LibrarySession":
        """Open a session: an existing one by id, id prefix, alias or title (`ref`), the one with your `key`, created on first use, or a new one."""
        if model is not None:
            registry.parse(model)
        if key == "":
            raise Invalid("the key of a session is empty")
        self._settings.terminal.check(terminal, "terminal")
        opening = OpenRequest(
            ref=ref,
            channel=None if key is None else CHANNEL + key,
            source="library",
            own=True,
            title=title,
            model=model,
            system=system,
            workdir=workdir or config.workdir(),
            terminal=terminal or "",
        )
        opened = await self.engine.open(opening)
        return LibrarySession(self.engine, opened.session.id)


class LibraryMemory:
    """The remembered facts of the local user."""

    def __init__(self, engine: Engine) -> None:
        self._services = engine.services

    async def list(self, query: str = "", *, limit: int = 100) -> list[Fact]:
        """The newest current facts, with those for everybody; with a query, those that share words with it, the best first."""
        wanted = FactFilter(owner=LOCAL_OWNER)
        if query.strip():
            return await self._services.database.read(memory.search, wanted, query, limit=limit)
        return await self._services.database.read(memory.list_page, wanted, limit=limit)

    async def add(self, text: str) -> Fact:
        """Save a fact about the person. Raises Invalid beyond a limit."""
        new = NewFact(place=MemoryPlace(LOCAL_OWNER), scope="user", text=text, author=BY)
        return await self._services.database.write(memory.add, new, seq=0, at=self._services.clock.now())

    async def correct(self, fact_id: str, text: str) -> Fact:
        """Replace a fact by a new version. Raises NotFound, or Conflict if it was corrected before."""
        number, at = parse_fact_id(fact_id), self._services.clock.now()
        return await self._services.database.write(memory.correct, number, text, by=BY, at=at)

    async def forget(self, fact_id: str) -> int:
        """Remove the text of a fact in all its versions; returns how many. Raises NotFound."""
        number, at = parse_fact_id(fact_id), self._services.clock.now()
        return await self._services.database.write(memory.forget, number, by=BY, at=at)


class LibrarySession:
    """One session. Its `id` never changes."""

    def __init__(self, engine: Engine, session_id: str) -> None:
        self._engine = engine
        self.id = session_id

    async def say(
        self, content: str | tuple[Content, ...], *, key: str = "", mode: InputMode | None = "queue"
    ) -> AsyncIterator[Entry | LiveText]:
        """Send a message and follow the turn: committed events (`Entry`) and live text (`LiveText`).

        Leaving the loop early does not stop the turn. With a `key` (an idempotency key), repeating the message follows the same turn.
        """
        message = NewMessage(self.id, content, mode=mode, caller=BY, key=key)
        turn = await self._engine.submit(message, stream="live")
        async with aclosing(turn.follow()) as items:
            async for item in items:
                yield item

    async def watch(self, *, after: int = 0) -> AsyncIterator[Entry | LiveText]:
        """Every event after `after`, and all new ones from any worker or client."""
        async with aclosing(self._engine.watch(self.id, after=after)) as items:
            async for item in items:
                if not isinstance(item, TurnBroke):
                    yield item

    async def messages(self) -> list[Message]:
        """All messages of the session. The hash chain of the log is verified."""
        _, entries = await self._engine.read(self.id)
        return messages(entries)

    async def compact(self, about: str = "") -> Compacted | CompactionFailed:
        """Compact the context now; `about` is the focus of the summary. Returns the resulting event.

        Raises Busy while a turn is open or another worker holds the session.
        """
        return await self._engine.compact(self.id, about)

    async def undo_compaction(self) -> CompactionUndone:
        """Restore the context to before the newest compaction. Raises Invalid if there is none."""
        return await self._engine.undo_compaction(self.id)

    async def interrupt(self) -> bool:
        """Interrupt the running turn; its events stay in the log. False if no turn is open."""
        return await self._engine.interrupt(self.id)

    async def set_goal(
        self,
        text: str,
        *,
        max_turns: int | None = None,
        max_hours: float | None = None,
        max_cost: float | None = None,
    ) -> AsyncIterator[Entry | LiveText]:
        """Set the goal of the session and follow its turns until it is reached, paused or over. `goal` returns the result.

        Leaving the loop early does not stop the work. A limit that is not given is that of the settings; `max_cost` is in
        US dollars. A goal that was set before is replaced.
        """
        changes = GoalChanges(max_turns=max_turns, max_hours=max_hours, max_cost=max_cost)
        planned = await self._engine.goals.plan(self.id, text, by=BY, changes=changes)
        message = NewMessage(self.id, first_message(planned), caller=BY, goal=planned)
        admission = (await self._engine.submit(message)).admission
        watched = self._engine.watch(self.id, after=admission.session.seq - len(admission.entries))
        async with aclosing(follow_goal(watched, self._engine.services.database, self.id)) as items:
            async for item in items:
                yield item

    async def goal(self) -> Goal | None:
        """The newest goal, with its state; None if there never was one."""
        return await self._engine.goals.get(self.id)

    async def pause_goal(self) -> Goal:
        """Pause the goal. A running turn goes on. Raises Conflict if there is none."""
        return await self._engine.goals.pause(self.id, by=BY)

    async def resume_goal(self) -> Goal:
        """Continue a paused goal. Raises Conflict if it has ended or expired."""
        return await self._engine.goals.resume(self.id, by=BY)

    async def clear_goal(self) -> Goal:
        """End the goal. A running turn goes on. Raises Conflict if there is none."""
        return await self._engine.goals.clear(self.id, by=BY)

    async def resume(self) -> None:
        """Resume a turn that a dead process left open."""
        await self._engine.resume(self.id)

    async def questions(self) -> list[Approval]:
        """Tool calls that wait for approval."""
        return await self._engine.services.database.read(approvals.list_unanswered_in_tree, self.id)

    async def answer(
        self,
        question: Approval,
        *,
        allowed: bool,
        scope: Scope = "once",
        match: Match = "exact",
        prefix: tuple[str, ...] = (),
        reason: str = "",
    ) -> ApprovalAnswered:
        """Allow or deny the call, and return the committed answer.

        A `scope` other than `once` also creates a rule: `match` says which calls it allows, and `prefix` are the first
        words of a prefix rule, if not the suggested ones. The model receives the `reason` of a denial.
        Raises Conflict if the question has already been answered, and Invalid for an unsafe rule.
        """
        if scope not in get_args(Scope) or match not in get_args(Match):
            raise Invalid(f"unknown scope {scope!r} or match {match!r}: see docs/library.md")
        if not allowed and scope != "once":
            raise Invalid(f"a denial applies once; scope {scope!r} needs allowed=True")
        given = Answer(allowed=allowed, scope=scope, match=match, prefix=prefix, reason=reason)
        return await self._engine.answer((self.id, question.turn_id, question.call_id), given, by=BY)


@asynccontextmanager
async def open_library(
    store: str | None = None, *, home: Path | str | None = None, model: str | None = None
) -> AsyncIterator[Holdfast]:
    """Implements `holdfast.open`."""
    settings = config.load(None if home is None else Path(home))
    if store is not None:
        settings = msgspec.structs.replace(settings, store=store)
    if model is not None:
        registry.parse(model)
        settings = msgspec.structs.replace(settings, model=model)
    async with (
        open_app(settings) as app,
        open_engine(
            app.database, settings, config.environment(), supervisor=app.supervisor, kind="library", sweeps=True
        ) as engine,
    ):
        yield Holdfast(engine, settings)
