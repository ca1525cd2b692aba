"""Session resets: which sessions are due, what prevents a reset, the reset itself, and how it is undone."""

from typing import cast

import msgspec

from holdfast.model.errors import Busy, Invalid, NotFound
from holdfast.model.event import Ended, Renewed, Reopened, ResetSkipped, SessionOpened
from holdfast.model.mode import DEFAULT_MODE, Mode, least_permissive
from holdfast.model.session import Session
from holdfast.model.times import DAY
from holdfast.store.database import Transaction
from holdfast.store.repos import aliases, approvals, delegations, input_queue, log, ownership, sessions

PAGE = 500
UNDO_LIMIT = DAY
"""How long a reset can be undone."""


class SkippedReset(msgspec.Struct, frozen=True):
    """Why a due reset is skipped, and since when."""

    reason: str
    at: int


def list_due(tx: Transaction, before: int, after: tuple[int, str] = (-1, ""), limit: int = PAGE) -> list[Session]:
    """Sessions of channels without a message since `before`, the longest idle first."""
    rows = tx.all("resets.list_due", before=before, after_at=after[0], after_id=after[1], limit=limit)
    return [sessions.get(tx, cast("str", row[0])) for row in rows]


def find_obstacle(tx: Transaction, session: Session) -> str | None:
    """The activity in the session that a reset must not interrupt."""
    if session.summary.open_turn is not None or session.lease_worker is not None:
        return "a turn is open"
    if approvals.list_unanswered(tx, session.id):
        return "an approval question is open"
    if input_queue.list_waiting(tx, session.id):
        return "messages are queued"
    if delegations.count_running(tx, session.id):
        return "a sub-agent is running"
    return None


def find_skip(tx: Transaction, session: Session) -> SkippedReset | None:
    """The last skipped reset of the session, if there was one since its last message."""
    row = tx.one("resets.get_skip", session=session.id, since=session.summary.active_at)
    return None if row is None else SkippedReset(*row)  # type: ignore[arg-type] # the schema checks the types


def skip(tx: Transaction, session_id: str, reason: str, fact: ResetSkipped, *, at: int) -> bool:
    """Record why a reset is skipped; False if the same reason is recorded. `reason` identifies it."""
    session = sessions.get(tx, session_id)
    known = find_skip(tx, session)
    if known is not None and known.reason == reason:
        return False
    tx.run("resets.put_skip", session=session_id, reason=reason, at=max(at, session.summary.active_at))
    log.annotate(tx, session_id, fact, at=at)
    return True


def renew(
    tx: Transaction, session: Session, new_id: str, reset: Renewed, *, at: int, mode: Mode = DEFAULT_MODE
) -> Session:
    """End the session and replace it with a new one with the same channel, model, system text, directory and owner.

    Its permission mode is `mode`, or the session's if that allows less.

    Raises Busy and changes nothing if the session is active or was used since `session` was read.
    """
    now = sessions.get(tx, session.id)
    if (found := find_obstacle(tx, now)) is not None or now.summary.active_at != session.summary.active_at:
        raise Busy(f"session {session.id} is in use: {found or 'it got a new message'}")
    if now.summary.end_reason == "session_reset" or not _is_current(tx, now):
        raise Busy(f"session {session.id} was already reset")
    if now.summary.ended_at is None:
        log.append_unheld(tx, session.id, [Ended(reason="session_reset", detail=reset.reason)], at=at)
    first = log.read(tx, session.id, last=1)[0].event
    opened = SessionOpened(
        source=now.summary.source,  # type: ignore[arg-type] # it was checked when it was stored
        channel=now.summary.channel,
        model=now.summary.model,
        system=sessions.get_system_text(tx, now),
        workdir=first.workdir if isinstance(first, SessionOpened) else None,
        mode=least_permissive(now.summary.mode, mode),
    )
    sessions.create(tx, new_id, opened, at=at)
    log.append_unheld(tx, new_id, [reset], at=at)
    _move(tx, now, new_id, at=at)
    tx.run("resets.delete_skip", session=session.id)
    return sessions.get(tx, new_id)


def undo(tx: Transaction, session_id: str, *, at: int) -> Session:
    """Undo a reset: the previous session becomes current again, with all its messages.

    Later messages stay in the session that the reset created, which is ended. Raises Invalid if there is no reset to undo
    or it is too late, NotFound if the previous session is gone, and Busy if the session is active.
    """
    session = sessions.get(tx, session_id)
    began = _beginning(tx, session_id)
    if began is None:
        raise Invalid(f"session {session_id} was not created by a reset; there is nothing to undo")
    previous = _conversation_before(tx, began[1])
    if at - began[0] > UNDO_LIMIT:
        raise Invalid(
            f"session {session_id} was created more than a day ago; its reset can no longer be undone. "
            f"Resume the previous session {previous.id} instead"
        )
    if previous.summary.trashed_at is not None:
        raise NotFound(f"session {previous.id} is in the trash; 'holdfast sessions restore {previous.id}' restores it")
    if (found := find_obstacle(tx, session)) is not None:
        raise Busy(f"session {session_id} is in use: {found}")
    if session.summary.ended_at is None:
        detail = f"its reset was undone; {previous.id} continues"
        log.append_unheld(tx, session_id, [Ended(reason="user", detail=detail)], at=at)
    reopened = Reopened(reason=f"the reset that created {session_id} was undone", by_person=True)
    log.append_unheld(tx, previous.id, [reopened], at=at)
    _move(tx, session, previous.id, at=at)
    return sessions.get(tx, previous.id)


def _beginning(tx: Transaction, session_id: str) -> tuple[int, Renewed] | None:
    """The reset that created a session, and its time."""
    return next(((e.at, e.event) for e in log.read(tx, session_id, last=2) if isinstance(e.event, Renewed)), None)


def _conversation_before(tx: Transaction, reset: Renewed) -> Session:
    """The session that a reset replaced; if that has no message, the one that it replaced."""
    previous = sessions.get(tx, reset.previous_id)
    while previous.summary.message_count == 0 and (began := _beginning(tx, previous.id)) is not None:
        previous = sessions.get(tx, began[1].previous_id)
    return previous


def _is_current(tx: Transaction, session: Session) -> bool:
    """Whether it is the current session of its channel, if it has one."""
    channel = session.summary.channel
    return channel is None or aliases.get_channel_session(tx, channel) == session.id


def _move(tx: Transaction, session: Session, to: str, *, at: int) -> None:
    """Give the channel of a session, if it is the current one there, and its owner to another session."""
    channel = session.summary.channel
    if channel is not None and aliases.get_channel_session(tx, channel) == session.id:
        aliases.set_channel_session(tx, channel, to, at=at)
    if session.owner_worker is not None:
        ownership.detach(tx, session.id, session.owner_worker, None, at=at)
        ownership.attach(tx, to, session.owner_worker)
