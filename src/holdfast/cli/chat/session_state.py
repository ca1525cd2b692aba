"""The state of a session besides its log: owner, open questions, queued messages."""

from collections.abc import Sequence

import msgspec

from holdfast.cli.chat.interrupted_turn import InterruptedTurn, describe
from holdfast.model.entry import Entry
from holdfast.model.goal import OPEN, Goal
from holdfast.model.session import Session
from holdfast.model.turn import turn_of
from holdfast.store.database import Transaction
from holdfast.store.repos import approvals, goals, input_queue, sessions, turn_lookup, workers
from holdfast.store.repos.approvals import Approval
from holdfast.store.repos.input_queue import Input
from holdfast.store.repos.workers import Worker


class ChatState(msgspec.Struct, frozen=True):
    """A snapshot of the state."""

    session: Session
    owner: Worker | None
    holder: Worker | None
    """The worker that runs its turn."""
    questions: list[Approval]
    waiting: list[Input]
    left: InterruptedTurn | None = None
    """The open turn, if no worker runs it."""
    goal: Goal | None = None
    approved: list[Approval] = []
    """Calls of an interrupted turn that were allowed and have not started."""


def load_state(tx: Transaction, session_id: str) -> ChatState:
    session = sessions.get(tx, session_id)
    owner = None if session.owner_worker is None else workers.get(tx, session.owner_worker)
    holder = None if session.lease_worker is None else workers.get(tx, session.lease_worker)
    entries = _left_entries(tx, session)
    return ChatState(
        session,
        owner,
        holder,
        approvals.list_unanswered_in_tree(tx, session_id),
        input_queue.list_waiting(tx, session_id),
        describe(entries) if entries else None,
        goals.get(tx, session_id) if session.summary.goal in OPEN else None,
        _approved(tx, session, entries),
    )


def _left_entries(tx: Transaction, session: Session) -> list[Entry]:
    """The events of the open turn, if no worker runs it."""
    turn_id = session.summary.open_turn
    if turn_id is None or session.lease_worker is not None:
        return []
    index = turn_lookup.find(tx, session.id, turn_id)
    return [] if index is None else turn_lookup.read_entries(tx, session.id, index)


def _approved(tx: Transaction, session: Session, entries: Sequence[Entry]) -> list[Approval]:
    """The approvals of calls in these events that have not started."""
    turn = turn_of(entries)
    if turn.id is None:
        return []
    unstarted = {call.id for call in turn.open_calls} - turn.started
    return [one for one in approvals.list_by_turn(tx, session.id, turn.id) if one.allowed and one.call_id in unstarted]
