"""One session in the place of another: what keeps it from happening, the change itself, and its undoing."""

from typing import cast

import msgspec

from holdfast.model.errors import Busy, Invalid, NotFound
from holdfast.model.event import Ended, Renewed, Reopened, ResetSkipped, SessionOpened
from holdfast.model.session import Session
from holdfast.model.times import DAY
from holdfast.store import aliases, approvals, inputs, log, owners, sessions
from holdfast.store.database import Transaction

PAGE = 500
UNDO = DAY
"""How long a reset can be undone."""


class Held(msgspec.Struct, frozen=True):
    """Why a reset that is due does not take place, and since when."""

    reason: str
    at: int


def due(tx: Transaction, before: int, after: tuple[int, str] = (-1, ""), limit: int = PAGE) -> list[Session]:
    """Sessions of channels in which nothing was said since then, those that have waited longest first."""
    rows = tx.all("resets.due", before=before, after_at=after[0], after_id=after[1], limit=limit)
    return [sessions.get(tx, cast("str", row[0])) for row in rows]


def obstacle(tx: Transaction, session: Session) -> str | None:
    """What goes on in the session that a reset must not cut off."""
    if session.summary.open_turn is not None or session.lease_worker is not None:
        return "a turn is open"
    if approvals.unanswered(tx, session.id):
        return "a question waits for an answer"
    if inputs.waiting(tx, session.id):
        return "words are waiting for their turn"
    return None


def held(tx: Transaction, session: Session) -> Held | None:
    """Why a reset of the session was last skipped, if that was since something was last said."""
    row = tx.one("resets.held", session=session.id, since=session.summary.active_at)
    return None if row is None else Held(*row)  # type: ignore[arg-type] # the schema checks the types


def skip(tx: Transaction, session_id: str, reason: str, fact: ResetSkipped, *, at: int) -> bool:
    """Write down why a reset did not take place; False if that is known already. `reason` tells one from another."""
    session = sessions.get(tx, session_id)
    known = held(tx, session)
    if known is not None and known.reason == reason:
        return False
    tx.run("resets.hold", session=session_id, reason=reason, at=max(at, session.summary.active_at))
    log.annotate(tx, session_id, fact, at=at)
    return True


def renew(tx: Transaction, session: Session, new_id: str, reset: Renewed, *, at: int) -> Session:
    """End the session and put a new one in its place, with the same channel, model, system text, folder and owner.

    Raises Busy, having changed nothing, if something goes on in it or it was used since `session` was read.
    """
    now = sessions.get(tx, session.id)
    if (found := obstacle(tx, now)) is not None or now.summary.active_at != session.summary.active_at:
        raise Busy(f"session {session.id} is in use: {found or 'something was said meanwhile'}")
    if now.summary.end_reason == "session_reset" or not _is_in_place(tx, now):
        raise Busy(f"session {session.id} was reset before")
    if now.summary.ended_at is None:
        log.append_unheld(tx, session.id, [Ended(reason="session_reset", detail=reset.reason)], at=at)
    first = log.read(tx, session.id, last=1)[0].event
    opened = SessionOpened(
        source=now.summary.source,  # type: ignore[arg-type] # it was checked when it was written
        channel=now.summary.channel,
        model=now.summary.model,
        system=first.system if isinstance(first, SessionOpened) else None,
        workdir=first.workdir if isinstance(first, SessionOpened) else None,
    )
    sessions.create(tx, new_id, opened, at=at)
    log.append_unheld(tx, new_id, [reset], at=at)
    _move(tx, now, new_id, at=at)
    tx.run("resets.release", session=session.id)
    return sessions.get(tx, new_id)


def undo(tx: Transaction, session_id: str, *, at: int) -> Session:
    """Put the session that was there before a reset back into its place; it goes on with all its messages.

    What was said since stays in the session that began with the reset, which is ended. Raises Invalid if there is
    nothing to undo or it is too late, NotFound if the session before is gone, Busy if something goes on.
    """
    session = sessions.get(tx, session_id)
    reset = next((e for e in log.read(tx, session_id, last=2) if isinstance(e.event, Renewed)), None)
    if reset is None or not isinstance(reset.event, Renewed):
        raise Invalid(f"session {session_id} did not begin with a reset; there is nothing to undo")
    if at - reset.at > UNDO:
        raise Invalid(
            f"session {session_id} began more than a day ago; its reset stands. "
            f"The session before is {reset.event.previous_id}, and can be resumed"
        )
    previous = sessions.get(tx, reset.event.previous_id)
    if previous.summary.trashed_at is not None:
        raise NotFound(
            f"session {previous.id} is in the trash; 'holdfast sessions restore {previous.id}' brings it back"
        )
    if (found := obstacle(tx, session)) is not None:
        raise Busy(f"session {session_id} is in use: {found}")
    if session.summary.ended_at is None:
        detail = f"its reset was undone; {previous.id} goes on"
        log.append_unheld(tx, session_id, [Ended(reason="user", detail=detail)], at=at)
    reopened = Reopened(reason=f"the reset that began {session_id} was undone", by_person=True)
    log.append_unheld(tx, previous.id, [reopened], at=at)
    _move(tx, session, previous.id, at=at)
    return sessions.get(tx, previous.id)


def _is_in_place(tx: Transaction, session: Session) -> bool:
    """Whether it is the current session of its channel, if it has one."""
    channel = session.summary.channel
    return channel is None or aliases.current(tx, channel) == session.id


def _move(tx: Transaction, session: Session, to: str, *, at: int) -> None:
    """Give a session's place to another: its channel, if it is the current one there, and its owner."""
    channel = session.summary.channel
    if channel is not None and aliases.current(tx, channel) == session.id:
        aliases.point(tx, channel, to, at=at)
    if session.owner_worker is not None:
        owners.detach(tx, session.id, session.owner_worker, None, at=at)
        owners.attach(tx, to, session.owner_worker)
