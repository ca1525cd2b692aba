"""Adds sessions to a store for the commands."""

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from holdfast.clock import SystemClock
from holdfast.model.event import (
    Event,
    ModelSaid,
    SessionOpened,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
    UserSaid,
)
from holdfast.model.ids import SESSION, TURN, WORKER, Ids
from holdfast.model.message import Reasoning, Text, ToolCall
from holdfast.process_lookup import current_identity
from holdfast.store.database import Transaction
from holdfast.store.repos import leases, log, sessions, workers
from tests.fakes.migrated import open_migrated

T = TypeVar("T")

NASTY = "red \x1b[31m, a bell \x07, not UTF-8 \udc80, turned \u202e, a tab\t, <b>bold</b>, `tick` and Füße 😀"


def turn(turn_id: str, asked: str, answer: str) -> list[Event]:
    """A whole turn with a tool call in it."""
    call = ToolCall("call-1", "terminal", '{"command":"ls"}')
    return [
        TurnStarted(turn_id=turn_id),
        UserSaid(turn_id=turn_id, parts=(Text(asked),)),
        ModelSaid(turn_id=turn_id, parts=(Reasoning(text="thinking"), Text("looking"), call), usage=Usage(tokens_in=7)),
        ToolStarted(turn_id=turn_id, call_id="call-1", name="terminal"),
        ToolEnded(turn_id=turn_id, call_id="call-1", outcome="ok", name="terminal", parts=(Text("a\nb"),)),
        ModelSaid(turn_id=turn_id, parts=(Text(answer),), usage=Usage(tokens_in=9, tokens_out=2, cost=0.1)),
        TurnEnded(turn_id=turn_id, outcome="done"),
    ]


class Seed:
    """Each call opens the store and closes it again, as a command does."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.clock = SystemClock()
        self.ids = Ids(self.clock.now)

    def write(self, work: Callable[[Transaction], T]) -> T:
        async def go() -> T:
            database = await open_migrated(self.path)
            try:
                return await database.write(work)
            finally:
                await database.close()

        return asyncio.run(go())

    def session(self, asked: str = "hello", *, title: str | None = None, turns: int = 1, **opened: str) -> str:
        """A session with some turns; its id."""
        return self.sessions(1, asked, title=title, turns=turns, **opened)[0]

    def sessions(
        self, count: int, asked: str = "hello", *, title: str | None = None, turns: int = 1, **opened: str
    ) -> list[str]:
        def work(tx: Transaction) -> list[str]:
            made = []
            for _ in range(count):
                begun = SessionOpened(**{"source": "chat", "model": "scripted:echo", **opened}, title=title)
                session, _ = sessions.create(tx, self.ids.make(SESSION), begun, at=self.clock.now())
                for _ in range(turns):
                    events = turn(self.ids.make(TURN), asked, "hello to you")
                    log.append_unheld(tx, session.id, events, at=self.clock.now())
                made.append(session.id)
            return made

        return self.write(work)

    def worker(self, *, holds: str | None = None, started: str | None = None) -> str:
        """A worker of this process, which is alive, or with another start time, which is gone."""
        ours = current_identity()
        theirs = workers.Identity(
            host=ours.host, boot=ours.boot, pid=ours.pid, process_started=started or ours.process_started
        )

        def work(tx: Transaction) -> str:
            worker_id = self.ids.make(WORKER)
            workers.register(tx, worker_id, "serve", theirs, version="1", at=self.clock.now())
            if holds is not None:
                leases.take(tx, holds, worker_id)
            return worker_id

        return self.write(work)

    def trash(self, session_id: str, *, days_ago: int) -> None:
        at = self.clock.now() - days_ago * 86_400_000_000
        self.write(lambda tx: sessions.trash(tx, session_id, at=at))
