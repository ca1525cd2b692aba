"""Resets: replaces a session that is due with a new one, unless that would interrupt work or a person.

`policy` decides what is due. Only an open turn, an open question, queued input, and processes that are active and
within their time to live block a reset. A blocked reset is logged once per reason. A reset is one transaction: the old
session ends, the new one starts in the same channel, and a notice says what happened and how to undo it. No data is
lost.

A sweep checks the sessions of channels that no worker has open. A session that a program or a chat has open is checked
when it is next opened or receives a message.
"""

import logging
from collections.abc import Sequence
from datetime import UTC
from typing import Literal

from holdfast.engine.liveness.janitor import SweepAction
from holdfast.engine.liveness.ownership import OwnedSessions
from holdfast.engine.outbound import OUT
from holdfast.engine.process_port import ProcessPort, Running
from holdfast.engine.reset.policy import DueReset, ResetPolicies, ResetPolicy, due, next_due
from holdfast.engine.services import EngineServices
from holdfast.model.errors import Busy, Unavailable
from holdfast.model.event import ProcessesLeft, Renewed, ResetSkipped
from holdfast.model.ids import SESSION, derive
from holdfast.model.process import Process
from holdfast.model.session import Session
from holdfast.model.text import truncate
from holdfast.model.times import iso
from holdfast.store.database import Transaction
from holdfast.store.repos import aliases, outbox, platforms, processes, resets, sessions
from holdfast.store.repos.outbox import OutboundMessage
from holdfast.store.repos.resets import SkippedReset

logger = logging.getLogger(__name__)
OnReset = Literal["stop", "keep", "warn"]
Leaving = Literal["stop", "keep", "hand_over"]
CHAT = "cli"
"""The channel whose policy applies to chats, which have no channel."""
COMMAND_CHARS = 80
NEVER = ResetPolicies(ResetPolicy("none", 120, 6, UTC))
"""Only manual resets."""


class Resets:
    """One per worker."""

    def __init__(
        self,
        services: EngineServices,
        owned: OwnedSessions,
        policies: ResetPolicies,
        registry: ProcessPort | None,
        *,
        on_reset: OnReset = "warn",
        home: str | None = None,
    ) -> None:
        self._services = services
        self._owned = owned
        self._policies = policies
        self._automatic = any(one.mode != "none" for one in (policies.default, *policies.channels.values()))
        self._registry = registry
        self._on_reset = on_reset
        self._home = home
        """The channel that is notified about processes that still run after a reset."""

    def due(self, session: Session) -> DueReset | None:
        """The reset that is due. An ended session without a channel is never due: only its user resumes it.

        A session without messages is not due either, so a silent chat is reset once.
        """
        channel = _channel(session)
        if channel is None or session.summary.quarantined is not None:
            return None
        return due(self._policies.of(channel), session.summary.active_at, self._services.clock.now())

    async def sweep(self) -> list[SweepAction]:
        """Reset the sessions that are due, and log what blocks the others."""
        before = self._policies.horizon(self._services.clock.now())
        actions: list[SweepAction] = []
        after = (-1, "")
        while before is not None and (page := await self._services.database.read(resets.list_due, before, after)):
            for session in page:
                found = self.due(session)
                if found is not None:
                    actions += await self._reset_or_skip(session, found)
            after = (page[-1].summary.active_at, page[-1].id)
        return actions

    async def _reset_or_skip(self, session: Session, found: DueReset) -> list[SweepAction]:
        renewed, skipped = await self._renew(session, found)
        if renewed is not None:
            return [SweepAction("reset", session_id=session.id, evidence=found.reason)]
        return [SweepAction("reset skipped", session_id=session.id, evidence=skipped)] if skipped else []

    async def renew_channel_if_due(self, channel: str | None) -> bool:
        """Reset the channel's session if that is due and not blocked; whether it was reset."""
        if channel is None or not self._automatic or self._policies.of(channel).mode == "none":
            return False
        current = await self._services.database.read(aliases.get_channel_session, channel)
        return current is not None and (await self.renew_if_due(current)).id != current

    async def renew_if_due(self, session_id: str) -> Session:
        """The session to continue with: this one or, if a reset is due and not blocked, a new one.

        The log of a new one begins with a `renewed` event, whose notice says what happened and how to undo it.
        """
        session = await self._services.database.read(sessions.get, session_id)
        found = self.due(session)
        if found is None:
            return session
        renewed, _ = await self._renew(session, found)
        return self._owned.moved(session_id, renewed or session)

    async def _renew(self, session: Session, found: DueReset) -> tuple[Session | None, str]:
        """The new session; or None, and the reason if it is new."""
        running = await self.running(session.id)
        obstacle = await self._services.database.read(resets.find_obstacle, session)
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
        new_id, at = self._services.ids.make(SESSION), self._services.clock.now()

        def work(tx: Transaction) -> Session:
            renewed = resets.renew(tx, session, new_id, reset, at=at, mode=self._services.mode)
            self._queue_notices(tx, renewed, notice, at, home=warn)
            return renewed

        try:
            renewed = await self._services.database.write(work)
        except Busy:  # a message arrived, or another worker did the reset
            return None, ""
        logger.info("session %s was reset: %s; %s replaces it", session.id, found.reason, renewed.id)
        await self._stop(stopping, f"ended at the reset of session {session.id}")
        if warn and self._home is None:
            logger.warning("for the home channel: %s", notice)
        return renewed, ""

    def _queue_notices(self, tx: Transaction, renewed: Session, notice: str, at: int, *, home: bool) -> None:
        """Queue the notice for the session's channel, if it has one, and for the home channel."""
        channel = renewed.summary.channel or ""
        chats = [channel] if platforms.get(tx, channel.partition(":")[0]) is not None else []
        for where in chats + ([self._home] if home and self._home is not None else []):
            out = derive(OUT, at, f"{renewed.id}@{where}")
            outbox.put(tx, out, outbox.parse_channel(where), OutboundMessage(text=notice), at=at, session_id=renewed.id)

    async def _skip(self, session: Session, found: DueReset, obstacle: str | None, blocking: Sequence[Running]) -> str:
        """Log why the reset is blocked, if that is new; returns the reason in that case."""
        key = obstacle or f"work of {', '.join(process.id for process, _ in blocking)}"
        details = tuple(f"{process.id} {_line(process)}: {seen.kind}, {seen.evidence}" for process, seen in blocking)
        reason = f"{found.reason}, but " + (obstacle or f"{len(blocking)} of its processes are active")
        fact = ResetSkipped(reason=reason, processes=details)
        if not await self._services.database.write(resets.skip, session.id, key, fact, at=self._services.clock.now()):
            return ""
        logger.info("the reset of session %s was skipped: %s %s", session.id, reason, "; ".join(details))
        return f"{reason} {'; '.join(details)}".strip()

    async def running(self, session_id: str) -> list[Running]:
        """The running processes of a session, each classified."""
        if self._registry is None:
            return []
        found = await self._registry.list(session_id=session_id)
        return [(process, self._registry.classify(process)) for process in found]

    async def outlook(self, session: Session) -> str:
        """When the session will be reset, or what blocks that; empty if it never is."""
        skipped = await self._services.database.read(resets.find_skip, session)
        return outlook(self._policies, session, skipped, self._services.clock.now())

    async def replace(self, session_id: str, leaving: Leaving = "keep") -> Session:
        """`/new`: replace this session with a new one; its processes are stopped, kept or handed over.

        Raises Busy if the session is in use.
        """
        running = await self.running(session_id)
        ids = tuple(process.id for process, _ in running)
        new_id, at = self._services.ids.make(SESSION), self._services.clock.now()
        reset = Renewed(previous_id=session_id, rule="new", reason="the user started a new session", processes=ids)
        left = ProcessesLeft(processes=ids, action=leaving, to=new_id if leaving == "hand_over" else "")

        def work(tx: Transaction) -> Session:
            renewed = resets.renew(tx, sessions.get(tx, session_id), new_id, reset, at=at, mode=self._services.mode)
            if ids:
                processes.record_left_processes(tx, session_id, left, at=at)
            return sessions.get(tx, renewed.id)

        renewed = await self._services.database.write(work)
        await self._stop(running if leaving == "stop" else [], "ended when the user started a new session")
        return self._owned.moved(session_id, renewed)

    async def undo(self, session_id: str) -> Session:
        """Restore the session before the reset. Raises Invalid, NotFound or Busy."""
        at = self._services.clock.now()
        previous = await self._services.database.write(resets.undo, session_id, at=at)
        logger.info("the reset that created session %s was undone; %s continues", session_id, previous.id)
        return self._owned.moved(session_id, previous)

    async def _stop(self, running: Sequence[Running], reason: str) -> None:
        for process, _ in running:
            try:
                assert self._registry is not None, "the processes were listed before"
                await self._registry.stop(process, reason)
            except Unavailable as e:
                logger.warning("%s", e)

    def _notice(self, session: Session, reason: str, running: Sequence[Running], *, stopped: bool) -> str:
        """The notice for the user."""
        lines = [
            f"A new session started: {reason}. The previous one is kept as {session.id}; "
            "/undo-reset returns to it within a day."
        ]
        if running:
            label = "Stopped with it" if stopped else "Still running from it"
            lines.append(f"{label}: " + "; ".join(f"{one.id} {_line(one)} ({seen.evidence})" for one, seen in running))
        return "\n".join(lines)


def _channel(session: Session) -> str | None:
    """The channel whose policy applies to the session; None for one that is never reset automatically."""
    summary = session.summary
    if summary.message_count == 0:
        return None
    return summary.channel or (CHAT if summary.source == "chat" and summary.ended_at is None else None)


def outlook(policies: ResetPolicies, session: Session, skipped: SkippedReset | None, now: int) -> str:
    """When the session will be reset, or what blocks that; empty if it never is. Pure."""
    channel = _channel(session)
    if channel is None:
        return ""
    policy = policies.of(channel)
    then = next_due(policy, session.summary.active_at)
    if then is None:
        return ""
    if skipped is not None:
        return f"due since {iso(then)}, blocked since {iso(skipped.at)}: {skipped.reason}"
    if then <= now:
        return f"due since {iso(then)}; takes place at the next sweep or with the next message"
    return f"due at {iso(then)} ({policy.mode}), unless there is a message before"


def _line(process: Process) -> str:
    return f"`{truncate(' '.join(process.command.split()), COMMAND_CHARS)}`"
