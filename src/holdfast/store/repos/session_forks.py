"""Forks: new sessions that begin with a part of another session's log."""

import msgspec

from holdfast.model.entry import GENESIS
from holdfast.model.errors import Conflict, Invalid
from holdfast.model.event import Event, Forked, Source
from holdfast.model.mode import least_permissive
from holdfast.model.session import Session, SessionSummary, summarise
from holdfast.model.turn import end_of_fork
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions


class SharedLog(msgspec.Struct, frozen=True):
    """The part of a log that a fork begins with. A log only grows and is chained by hash, so its last hash covers all of it."""

    parent_id: str
    seq: int
    hash: str
    summary: SessionSummary
    closing_events: tuple[Event, ...]
    """The events that close the turn that is open at its end."""


def prepare_fork(tx: Transaction, parent_id: str, at_seq: int | None = None) -> SharedLog:
    """Verify the parent's log up to `at_seq`, by default all of it, for `fork`.

    Call it in a read transaction: its cost grows with the log. Raises Corrupt if that part is damaged; a fork before the
    damage is possible.
    """
    parent = sessions.get(tx, parent_id)
    upto = parent.seq if at_seq is None else at_seq
    if not 1 <= upto <= parent.seq:
        raise Invalid(f"session {parent_id} has events 1 to {parent.seq}; it cannot be forked at {upto}")
    shared = log.read_verified(tx, parent_id, upto)
    return SharedLog(parent_id, upto, shared[-1].hash, summarise(shared), tuple(end_of_fork(shared)))


def is_unchanged(tx: Transaction, shared: SharedLog) -> bool:
    """Whether the parent's log still contains that part."""
    row = tx.one("log.get_hash", session=shared.parent_id, seq=shared.seq)
    return row is not None and row[0] == shared.hash


def fork(
    tx: Transaction,
    shared: SharedLog,
    new_id: str,
    *,
    at: int,
    source: Source | None = None,
    channel: str | None = None,
) -> Session:
    """A new session with that part of the parent's log, hashes included.

    Tool calls that were open at that point are closed as unknown in the fork: it can be continued at once. Its permission
    mode is not more permissive than the parent's is now. Raises Conflict if the parent's log is no longer the one that was shared.
    """
    if not is_unchanged(tx, shared):
        raise Conflict(f"session {shared.parent_id} was changed while it was being forked; try again")
    if tx.one("sessions.create", id=new_id, hash=GENESIS, source=shared.summary.source, at=at) is None:
        raise Invalid(f"session {new_id} already exists")
    tx.run("session_forks.copy_events", id=new_id, parent=shared.parent_id, upto=shared.seq)
    log.write_head(tx, log.LogHead(new_id, shared.seq, shared.hash), SessionSummary(), shared.summary)
    then = shared.summary.mode
    mode = least_permissive(then, sessions.get(tx, shared.parent_id).summary.mode)
    fact = Forked(
        parent_id=shared.parent_id,
        at_seq=shared.seq,
        at_hash=shared.hash,
        source=source,
        channel=channel,
        mode=None if mode == then else mode,
    )
    return log.append_unheld(tx, new_id, [fact, *shared.closing_events], at=at)
