"""Owners: which worker has a session open, also between turns.

A chat or a script *owns* the session that it has open; it takes the lease only during a turn. An owner that exits cleanly
detaches; after a crash, a sweep finds the session by its owner.
"""

from collections.abc import Collection
from typing import cast

from holdfast.model.event import Ended, EndReason
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions, workers
from holdfast.store.repos.workers import Worker

PAGE = 500


def attach(tx: Transaction, session_id: str, worker_id: str) -> bool:
    """Make the worker the owner of the session; False if another one is. Raises Conflict for a worker declared dead."""
    if tx.one("ownership.attach", session=session_id, worker=worker_id) is not None:
        return True
    workers.ensure_alive(tx, worker_id)
    return False


def detach(tx: Transaction, session_id: str, worker_id: str, reason: EndReason | None, *, at: int) -> None:
    """Remove the worker as owner, and end the session if a reason is given and no turn is open.

    If another worker holds the lease, it becomes the owner. A worker that is not the owner changes nothing.
    """
    if tx.one("ownership.detach", session=session_id, worker=worker_id) is None or reason is None:
        return
    session = sessions.get(tx, session_id)
    if session.lease_worker is None and session.summary.open_turn is None:
        sessions.end(tx, session_id, reason, at=at)


def hand_over(tx: Transaction, session_id: str, worker_id: str, to_worker: str) -> bool:
    """Make another live worker the owner; False if that is not alive or this worker is not the owner."""
    handed = tx.one("ownership.hand_over", session=session_id, worker=worker_id, to=to_worker) is not None
    tx.notify(session_id)
    return handed


def list_owned(tx: Transaction, worker_id: str, limit: int = PAGE) -> list[str]:
    """Sessions that a worker owns, up to the limit."""
    return [cast("str", row[0]) for row in tx.all("ownership.list_owned", worker=worker_id, limit=limit)]


def list_orphans(tx: Transaction, after: str = "", limit: int = PAGE) -> list[str]:
    """Sessions with an open turn and no lease, after an id."""
    return [cast("str", row[0]) for row in tx.all("ownership.list_orphans", after=after, limit=limit)]


def list_unclaimed_input(tx: Transaction, after: str = "", limit: int = PAGE) -> list[str]:
    """Sessions with queued input and no worker to take it, after an id."""
    return [cast("str", row[0]) for row in tx.all("ownership.list_unclaimed_input", after=after, limit=limit)]


def end_abandoned(
    tx: Transaction, session_id: str, owner: Worker, evidence: str, *, continued: Collection[str], at: int
) -> str | None:
    """End a session whose owner is gone, as of its last sign of life; returns what was done, None if the owner has changed.

    An open turn stays open in the log, and can be continued when the session is resumed. A session from the `continued`
    sources stays open for that.
    """
    if tx.one("ownership.detach", session=session_id, worker=owner.id) is None:
        return None
    session = sessions.get(tx, session_id)
    summary = session.summary
    if summary.ended_at is not None:
        return None
    if session.lease_worker is not None:
        return "left to the worker that runs it"
    if summary.open_turn is not None and summary.source in continued:
        return "left for recovery"
    if summary.open_turn is None and summary.channel is not None:
        return "kept open for input"
    sign = max(owner.beat_at, summary.updated_at)
    ended = Ended(reason="reaped", detail=evidence, last_sign_at=min(sign, at))
    log.append_unheld(tx, session_id, [ended], at=at)
    return "ended, because its owner died"


def end_idle(tx: Transaction, before: int, *, at: int, limit: int = PAGE) -> list[Session]:
    """End API sessions that were not used since `before`; they reopen when the client returns."""
    ended = []
    for session_id, updated_at in tx.all("ownership.list_idle", before=before, limit=limit):
        fact = Ended(reason="idle", detail="it was not used", last_sign_at=cast("int", updated_at))
        ended.append(log.append_unheld(tx, cast("str", session_id), [fact], at=at))
    return ended
