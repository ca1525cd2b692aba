"""Resets: a new session takes the place of one that is due for it, unless work or a person would be cut off.

Who decides: the calendar says what is due; the guard says what holds it back. Only a turn that is open, a question or
words that wait, and processes that are at work and within their time to live do. A reset that is held back is
written down, once for each reason. One that takes place is one transaction: the old session ends, the new one
begins under the same channel, with a notice of what happened and how to undo it. Nothing is lost by it.

A sweep looks at the sessions of channels that nobody has open. A session that a program or a chat has open is looked
at when it is next spoken to or opened.
"""

import logging
from collections.abc import Sequence
from datetime import UTC
from typing import Literal

from holdfast.engine.calendar import Due, Policies, Policy, coming, due
from holdfast.engine.hand import Ground
from holdfast.engine.janitor import Deed
from holdfast.engine.processes import Processes, Running
from holdfast.engine.replies import OUT
from holdfast.model.errors import Busy, Unavailable
from holdfast.model.event import ProcessesLeft, Renewed, ResetSkipped
from holdfast.model.ids import SESSION, derive
from holdfast.model.process import Process
from holdfast.model.session import Session
from holdfast.model.times import iso
from holdfast.store import outbox, platforms, processes, resets, sessions
from holdfast.store.database import Transaction
from holdfast.store.outbox import Message
from holdfast.store.resets import Held

logger = logging.getLogger(__name__)
OnReset = Literal["stop", "keep", "warn"]
Leaving = Literal["stop", "keep", "hand_over"]
CHAT = "cli"
"""The channel whose policy chats follow, which have none of their own."""
COMMAND_CHARS = 80
NEVER = Policies(Policy("none", 120, 6, UTC))
"""Nothing is reset but by hand."""


class Resets:
    """One per worker."""

    def __init__(
        self,
        ground: Ground,
        policies: Policies,
        registry: Processes | None,
        *,
        on_reset: OnReset = "warn",
        home: str | None = None,
    ) -> None:
        self._ground = ground
        self._policies = policies
        self._registry = registry
        self._on_reset = on_reset
        self._home = home
        """The channel that is told of what still runs from a session that was reset."""

    def ever(self, channel: str) -> bool:
        """Whether sessions of the channel are ever reset by themselves."""
        return self._policies.of(channel).mode != "none"

    def due(self, session: Session) -> Due | None:
        """The reset that the session is due for. One without a channel that has ended is only taken up by its person."""
        channel = _channel(session)
        if channel is None or session.summary.quarantined is not None:
            return None
        return due(self._policies.of(channel), session.summary.active_at, self._ground.clock.now())

    async def sweep(self) -> list[Deed]:
        """Reset what is due, and write down what holds back the rest."""
        before = self._policies.horizon(self._ground.clock.now())
        deeds: list[Deed] = []
        after = (-1, "")
        while before is not None and (page := await self._ground.database.read(resets.due, before, after)):
            for session in page:
                found = self.due(session)
                if found is not None:
                    deeds += await self._see_to(session, found)
            after = (page[-1].summary.active_at, page[-1].id)
        return deeds

    async def _see_to(self, session: Session, found: Due) -> list[Deed]:
        renewed, held = await self._renew(session, found)
        if renewed is not None:
            return [Deed("reset", session_id=session.id, evidence=found.reason)]
        return [Deed("reset skipped", session_id=session.id, evidence=held)] if held else []

    async def freshen(self, session: Session) -> Session:
        """The session to go on with: this one or, if it is due for a reset and nothing holds it back, a new one."""
        found = self.due(session)
        if found is None:
            return session
        renewed, _ = await self._renew(session, found)
        return renewed or session

    async def _renew(self, session: Session, found: Due) -> tuple[Session | None, str]:
        """The new session; or None, and why if that is news."""
        running = await self.running(session.id)
        obstacle = await self._ground.database.read(resets.obstacle, session)
        blocking = [one for one in running if one[1].blocks]
        if obstacle is not None or blocking:
            return None, await self._skip(session, found, obstacle, blocking)
        stopping = running if found.rule == "daily" and self._on_reset == "stop" else []
        notice = self._notice(session, found.reason, running, stopped=bool(stopping))
        reset = Renewed(
            previous_id=session.id,
            rule=found.rule,
            reason=found.reason,
            notice=notice,
            processes=tuple(process.id for process, _ in running),
        )
        warn = bool(running) and found.rule == "daily" and self._on_reset == "warn"
        new_id, at = self._ground.ids.make(SESSION), self._ground.clock.now()

        def work(tx: Transaction) -> Session:
            renewed = resets.renew(tx, session, new_id, reset, at=at)
            self._tell(tx, renewed, notice, at, home=warn)
            return renewed

        try:
            renewed = await self._ground.database.write(work)
        except Busy:  # somebody spoke, or another worker has done it
            return None, ""
        logger.info("session %s was reset: %s; %s takes its place", session.id, found.reason, renewed.id)
        await self._stop(stopping, f"ended at the reset of session {session.id}")
        if warn and self._home is None:
            logger.warning("for the home channel: %s", notice)
        return renewed, ""

    def _tell(self, tx: Transaction, renewed: Session, notice: str, at: int, *, home: bool) -> None:
        """Have the notice delivered to the session's chat, if it is one, and to the home channel."""
        channel = renewed.summary.channel or ""
        chats = [channel] if platforms.get(tx, channel.partition(":")[0]) is not None else []
        for where in chats + ([self._home] if home and self._home is not None else []):
            out = derive(OUT, at, f"{renewed.id}@{where}")
            outbox.put(tx, out, outbox.address_of(where), Message(text=notice), at=at, session_id=renewed.id)

    async def _skip(self, session: Session, found: Due, obstacle: str | None, blocking: Sequence[Running]) -> str:
        """Write down why the reset does not take place, if that is news; the reason, if it is."""
        key = obstacle or f"work of {', '.join(process.id for process, _ in blocking)}"
        told = tuple(f"{process.id} {_line(process)}: {seen.kind}, {seen.evidence}" for process, seen in blocking)
        reason = f"{found.reason}, but " + (obstacle or f"{len(blocking)} of its processes are at work")
        fact = ResetSkipped(reason=reason, processes=told)
        if not await self._ground.database.write(resets.skip, session.id, key, fact, at=self._ground.clock.now()):
            return ""
        logger.info("the reset of session %s was skipped: %s %s", session.id, reason, "; ".join(told))
        return f"{reason} {'; '.join(told)}".strip()

    async def running(self, session_id: str) -> list[Running]:
        """The processes of a session that live, each judged."""
        if self._registry is None:
            return []
        found = await self._registry.list(session_id=session_id)
        return [(process, self._registry.judge(process)) for process in found]

    async def outlook(self, session: Session) -> str:
        """When the session is reset by itself, or what holds that back, in a sentence; empty where it never is."""
        held = await self._ground.database.read(resets.held, session)
        return outlook(self._policies, session, held, self._ground.clock.now())

    async def begin_anew(self, session: Session, leaving: Leaving) -> Session:
        """What `/new` does: a new session in the place of this one, whose processes are stopped, kept or handed over.

        Raises Busy if something goes on in the session.
        """
        running = await self.running(session.id)
        ids = tuple(process.id for process, _ in running)
        new_id, at = self._ground.ids.make(SESSION), self._ground.clock.now()
        reset = Renewed(previous_id=session.id, rule="new", reason="a person began another session", processes=ids)
        left = ProcessesLeft(processes=ids, action=leaving, to=new_id if leaving == "hand_over" else "")

        def work(tx: Transaction) -> Session:
            renewed = resets.renew(tx, sessions.get(tx, session.id), new_id, reset, at=at)
            if ids:
                processes.leave(tx, session.id, left, at=at)
            return sessions.get(tx, renewed.id)

        renewed = await self._ground.database.write(work)
        await self._stop(running if leaving == "stop" else [], "ended when a person began another session")
        return renewed

    async def undo(self, session_id: str) -> Session:
        """Put the session before the reset back. Raises Invalid, NotFound or Busy."""
        at = self._ground.clock.now()
        previous = await self._ground.database.write(resets.undo, session_id, at=at)
        logger.info("the reset that began session %s was undone; %s goes on", session_id, previous.id)
        return previous

    async def _stop(self, running: Sequence[Running], reason: str) -> None:
        for process, _ in running:
            try:
                assert self._registry is not None, "somebody has listed the processes"
                await self._registry.stop(process, reason)
            except Unavailable as e:
                logger.warning("%s", e)

    def _notice(self, session: Session, reason: str, running: Sequence[Running], *, stopped: bool) -> str:
        """What the person is told."""
        lines = [
            f"A new session began: {reason}. The one before is kept as {session.id}; "
            "/undo-reset goes on with it, for a day."
        ]
        if running:
            fate = "Ended with it" if stopped else "Still running from it"
            lines.append(f"{fate}: " + "; ".join(f"{one.id} {_line(one)} ({seen.evidence})" for one, seen in running))
        return "\n".join(lines)


def _channel(session: Session) -> str | None:
    """The channel whose policy the session follows; None for one that is never reset by itself."""
    summary = session.summary
    return summary.channel or (CHAT if summary.source == "chat" and summary.ended_at is None else None)


def outlook(policies: Policies, session: Session, held: Held | None, now: int) -> str:
    """When the session is reset by itself, or what holds that back, in a sentence; empty where it never is. Pure."""
    channel = _channel(session)
    if channel is None:
        return ""
    policy = policies.of(channel)
    then = coming(policy, session.summary.active_at)
    if then is None:
        return ""
    if held is not None:
        return f"due since {iso(then)}, held back since {iso(held.at)}: {held.reason}"
    if then <= now:
        return f"due since {iso(then)}; it takes place at the next sweep, or with the next words"
    return f"due at {iso(then)} ({policy.mode}), if nothing is said before"


def _line(process: Process) -> str:
    line = " ".join(process.command.split())
    return f"`{line if len(line) <= COMMAND_CHARS else line[:COMMAND_CHARS] + '…'}`"
