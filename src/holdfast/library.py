"""Holdfast inside another Python program: `async with holdfast.open() as hf`."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import msgspec

from holdfast import config
from holdfast.app import open_app
from holdfast.assemble import open_engine
from holdfast.engine.bus import Live
from holdfast.engine.engine import Engine
from holdfast.engine.opening import Opening
from holdfast.model.entry import Entry
from holdfast.model.event import Compacted, CompactionFailed, CompactionUndone
from holdfast.model.message import Content, Message
from holdfast.model.session import messages
from holdfast.store.approvals import Approval
from holdfast.store.inputs import Mode

CHANNEL = "key:"
"""Names that callers give to sessions live here: the same name is the same session from a program and from `holdfast run --key`."""


class Holdfast:
    """An open store with a worker in it."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine

    async def session(
        self,
        ref: str | None = None,
        *,
        key: str | None = None,
        title: str | None = None,
        model: str | None = None,
        system: str | None = None,
        workdir: Path | None = None,
    ) -> "Session":
        """A session: an existing one by its id, prefix, alias or title; by your own `key`, made when it is first asked for; or a new one."""
        opening = Opening(
            ref=ref,
            channel=None if key is None else CHANNEL + key,
            source="library",
            own=True,
            title=title,
            model=model,
            system=system,
            workdir=workdir or config.workdir(),
        )
        opened = await self.engine.open(opening)
        return Session(self.engine, opened.session.id)


class Session:
    """One conversation, by its id for life."""

    def __init__(self, engine: Engine, session_id: str) -> None:
        self._engine = engine
        self.id = session_id

    async def say(
        self, said: str | tuple[Content, ...], *, key: str = "", mode: Mode | None = "queue"
    ) -> AsyncIterator[Entry | Live]:
        """Say something and follow the turn: committed events (`Entry`) and live text (`Live`).

        Leaving the loop early does not stop the turn. With a `key`, a repeat of the same words is the same turn.
        """
        async for item in self._engine.say(self.id, said, mode=mode, caller="library", key=key):
            yield item

    async def watch(self, *, after: int = 0) -> AsyncIterator[Entry | Live]:
        """Every event behind `after` and all to come, whoever makes them."""
        async for item in self._engine.watch(self.id, after=after):
            yield item

    async def messages(self) -> list[Message]:
        """All that was said, proved complete."""
        _, entries = await self._engine.read(self.id)
        return messages(entries)

    async def compact(self, about: str = "") -> Compacted | CompactionFailed:
        """Make the context smaller now; the event that tells what came of it. Raises Busy while a turn is open or somebody else holds the session."""
        return await self._engine.compact(self.id, about)

    async def undo_compaction(self) -> CompactionUndone:
        """Show the model again what it was shown before the newest compaction. Raises Invalid if there is none."""
        return await self._engine.undo_compaction(self.id)

    async def interrupt(self) -> bool:
        """Ask the running turn to end; what was said stays. False if no turn is open."""
        return await self._engine.interrupt(self.id)

    async def resume(self) -> None:
        """Go on with a turn that was left open by a process that died."""
        await self._engine.resume(self.id)

    async def questions(self) -> list[Approval]:
        """Tool calls that wait for a person's word."""
        return await self._engine.questions(self.id)

    async def answer(self, question: Approval, *, allowed: bool) -> None:
        """Answer a question, once."""
        await self._engine.approve(self.id, question.turn_id, question.call_id, allowed=allowed, by="library")


@asynccontextmanager
async def open_library(
    store: str | None = None, *, home: Path | str | None = None, model: str | None = None
) -> AsyncIterator[Holdfast]:
    """What `holdfast.open` does."""
    settings = config.load(None if home is None else Path(home))
    if store is not None:
        settings = msgspec.structs.replace(settings, store=store)
    if model is not None:
        settings = msgspec.structs.replace(settings, model=model)
    async with (
        open_app(settings) as app,
        open_engine(app.database, settings, config.environment(), kind="library", sweeps=True) as engine,
    ):
        yield Holdfast(engine)
