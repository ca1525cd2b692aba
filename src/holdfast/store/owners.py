"""Who has a session open, between its turns too.

A chat or a script *owns* the session it has open; the lease is taken only while a turn is written. When
the owner ends well it says so; when it dies, the owner is what a sweep finds the session by.
"""

from collections.abc import Collection
from typing import cast

from holdfast.model.event import Ended, EndReason
from holdfast.model.session import Session
from holdfast.store import log, sessions, workers
from holdfast.store.database import Transaction
from holdfast.store.workers import Worker

PAGE = 500


def attach(tx: Transaction, session_id: str, worker_id: str) -> bool:
    """Make the worker the session's owner; False if another has it open. Raises Conflict for a worker declared dead."""
    if tx.one("owners.attach", session=session_id, worker=worker_id) is not None:
        return True
    workers.refuse_the_dead(tx, worker_id)
    return False


def detach(tx: Transaction, session_id: str, worker_id: str, reason: EndReason | None, *, at: int) -> None:
    """Let go of the session and end it for this reason, if one is given, it is ours and nobody is at work in it.

    If another worker is, the session becomes that one's.
    """
    if tx.one("owners.detach", session=session_id, worker=worker_id) is None or reason is None:
        return
    session = sessions.get(tx, session_id)
    if session.lease_worker is None and session.summary.open_turn is None:
        sessions.end(tx, session_id, reason, at=at)


def hand_over(tx: Transaction, session_id: str, worker_id: str, to_worker: str) -> bool:
    """Make another living worker the owner of a session that is this one's; False if either is not so."""
    handed = tx.one("owners.hand_over", session=session_id, worker=worker_id, to=to_worker) is not None
    tx.notify(session_id)
    return handed


def owned(tx: Transaction, worker_id: str, limit: int = PAGE) -> list[str]:
    """Sessions that a worker has open: the first of them."""
    return [cast("str", row[0]) for row in tx.all("owners.owned", worker=worker_id, limit=limit)]


def orphans(tx: Transaction, after: str = "", limit: int = PAGE) -> list[str]:
    """Sessions with a turn that nobody works on, from behind an id on."""
    return [cast("str", row[0]) for row in tx.all("owners.orphans", after=after, limit=limit)]


def unheard(tx: Transaction, after: str = "", limit: int = PAGE) -> list[str]:
    """Sessions in which words wait and nobody listens, from behind an id on."""
    return [cast("str", row[0]) for row in tx.all("owners.unheard", after=after, limit=limit)]


def reap(
    tx: Transaction, session_id: str, owner: Worker, evidence: str, *, continued: Collection[str], at: int
) -> str | None:
    """End a session whose owner is gone, at its last sign of life; what was done, or None if it was no longer the owner's.

    A turn that was open stays open in the log: whoever takes the session up again is offered to go on with it.
    A session of the `continued` sources is left open for that.
    """
    if tx.one("owners.detach", session=session_id, worker=owner.id) is None:
        return None
    session = sessions.get(tx, session_id)
    summary = session.summary
    if summary.ended_at is not None:
        return None
    if session.lease_worker is not None:
        return "left to the one at work in it"
    if summary.open_turn is not None and summary.source in continued:
        return "left to be taken up"
    if summary.open_turn is None and summary.channel is not None:
        return "left waiting for input"
    sign = max(owner.beat_at, summary.updated_at)
    ended = Ended(reason="reaped", detail=evidence, last_sign_at=min(sign, at))
    log.append_unheld(tx, session_id, [ended], at=at)
    return "ended as reaped"


def end_idle(tx: Transaction, before: int, *, at: int, limit: int = PAGE) -> list[Session]:
    """End API sessions that nobody has used since then; they reopen by themselves when the client returns."""
    ended = []
    for session_id, updated_at in tx.all("owners.idle", before=before, limit=limit):
        fact = Ended(reason="idle", detail="nobody used it", last_sign_at=cast("int", updated_at))
        ended.append(log.append_unheld(tx, cast("str", session_id), [fact], at=at))
    return ended
