"""Delegated tasks: the link between a tool call and a child session, and the one completion that the parent gets.

`after_append` runs in every transaction that appends events to a parent or a child. So whatever ends a child, and whatever
ends a parent's call, turn or session, changes the link in the same commit:

- A child's end is recorded once. If a call waits for it, the call returns it, and the commit of the call's result marks it
  as delivered. Otherwise the completion goes to the parent in this transaction: as input that wakes it, or as an event.
- A call that ends without the result of its child asks the child to stop, and its completion becomes an event.
- A less permissive mode of a parent is one of its running children, too.
- The end of a session asks its running children to stop, unless the session ended because a worker died. Completions that
  are still queued then become events.
"""

from collections.abc import Iterator, Sequence
from typing import cast

from holdfast.model.delegation import DelegationRecord
from holdfast.model.entry import decode, dumps, loads
from holdfast.model.event import (
    ApprovalAnswered,
    ApprovalAsked,
    ChildEnded,
    Delegation,
    Ended,
    Event,
    InputDropped,
    ModeChanged,
    ModelSaid,
    ToolEnded,
    Trashed,
    TurnEnded,
    TurnOutcome,
    UserSaid,
)
from holdfast.model.ids import TURN, derive
from holdfast.model.message import Outcome, text_of
from holdfast.model.mode import Mode, least_permissive
from holdfast.model.session import CHILD, Session, SessionSummary
from holdfast.store.database import Row, Transaction
from holdfast.store.id_batches import all_by_ids
from holdfast.store.repos import input_queue, outbox
from holdfast.store.repos.input_queue import Input

TOPIC = "delegations"
"""Notified when a child was created, ended or asked to stop."""
TOOL = "delegate"
KEPT_ENDS = ("reaped", "recovered", "error", "compression")
"""End reasons of sessions whose children continue: nobody decided that the work is over."""
REASON, DELIVERED = 12, 14
"""The positions of two columns: between them are the texts that are stored as JSON."""
MAX_REPLY = 60_000
"""Characters of a child's last reply that its parent gets; the child's log has all of it."""

PARENT_EVENTS: frozenset[type[Event]] = frozenset({ToolEnded, Ended, ModeChanged, Trashed})
"""Events that may concern the children of any session."""
QUESTION_EVENTS = (ApprovalAsked, ApprovalAnswered, TurnEnded)
Note = tuple[str, ChildEnded | ModeChanged]
"""An event for the log of another session."""


def add(
    tx: Transaction,
    child_id: str,
    link: Delegation,
    *,
    task_turn: str,
    title: str,
    delivery: str,
    at: int,
    deadline: int,
) -> None:
    """Link a child to the call that delegates to it. Call it in the transaction that creates the child."""
    tx.run(
        "delegations.add",
        session=child_id,
        parent=link.parent_id,
        turn=link.turn_id,
        call=link.call_id,
        task_turn=task_turn,
        title=title,
        delivery=delivery,
        at=at,
        deadline_at=deadline,
    )
    tx.notify(TOPIC)


def get(tx: Transaction, child_id: str) -> DelegationRecord | None:
    return _record(tx.one("delegations.get", child=child_id))


def get_by_call(tx: Transaction, parent_id: str, turn_id: str, call_id: str) -> DelegationRecord | None:
    """The delegation of a tool call, if the call has made one."""
    return _record(tx.one("delegations.get_by_call", parent=parent_id, turn=turn_id, call=call_id))


def list_children(tx: Transaction, parent_id: str) -> list[DelegationRecord]:
    """The delegations of a session, oldest first."""
    return _records(tx.all("delegations.list_by_parent", parent=parent_id))


def list_child_ids(tx: Transaction, parent_id: str) -> list[str]:
    """The children of a session, oldest first."""
    return [record.child_id for record in list_children(tx, parent_id)]


def map_child_ids(tx: Transaction, listed: Sequence[Session]) -> dict[str, list[str]]:
    """The children of each of these sessions that has any, oldest first."""
    found: dict[str, list[str]] = {}
    for parent_id, child_id in all_by_ids(tx, "delegations.list_children_of", [session.id for session in listed]):
        found.setdefault(str(parent_id), []).append(cast("str", child_id))
    return found


def list_to_stop(tx: Transaction, *, at: int) -> list[DelegationRecord]:
    """Running children that were asked to stop, or have exceeded their time limit."""
    return _records(tx.all("delegations.list_to_stop", at=at))


def list_unclaimed(tx: Transaction, worker_id: str, *, takes_left: bool) -> list[str]:
    """Sessions that this worker should serve: children of those that it runs, and idle ones with a completion.

    With `takes_left`, also those that no worker has. Without it, idle ones only if they work towards a goal.
    """
    children = tx.all("delegations.list_unclaimed_children", holder=worker_id, takes_left=int(takes_left))
    query = "delegations.list_unclaimed_parents" if takes_left else "delegations.list_unclaimed_goals"
    waiting = tx.all(query, holder=worker_id)
    return [cast("str", row[0]) for row in (*children, *waiting)]


def get_next_deadline(tx: Transaction) -> int | None:
    """The earliest time limit of a running child."""
    row = tx.one("delegations.get_next_deadline")
    return None if row is None else cast("int | None", row[0])


def is_task(tx: Transaction, child_id: str, turn_id: str) -> bool:
    """Whether the turn of a child is the one that does its task."""
    record = get(tx, child_id)
    return record is not None and record.task_turn == turn_id


def find_root(tx: Transaction, session_id: str, turn_id: str) -> tuple[str, str]:
    """The session at the top of the tree, and its turn that delegated; the given ones for a session that is no child."""
    for record in iterate_above(tx, session_id):
        session_id, turn_id = record.parent_id, record.turn_id
    return session_id, turn_id


def iterate_above(tx: Transaction, session_id: str) -> Iterator[DelegationRecord]:
    """The delegations that lead to a session, the nearest first. A session that is above itself ends them."""
    seen = {session_id}
    while (record := get(tx, session_id)) is not None and record.parent_id not in seen:
        yield record
        session_id = record.parent_id
        seen.add(session_id)


def count_running(tx: Transaction, parent_id: str) -> int:
    row = tx.one("delegations.count_running", parent=parent_id)
    assert row is not None, "a count is always there"
    return cast("int", row[0])


def request_stop(tx: Transaction, child_id: str, reason: str) -> None:
    """Ask a running child to stop; the first reason stays. A worker carries it out."""
    tx.run("delegations.request_stop", session=child_id, reason=reason)
    tx.notify(TOPIC)


def after_append(
    tx: Transaction, session_id: str, summary: SessionSummary, events: Sequence[Event], *, at: int
) -> list[Note]:
    """Update the links of a session to which events were appended. The returned events belong to other logs."""
    notes: list[Note] = []
    parent_id = summary.parent_id if summary.source == CHILD else None
    for event in events:
        if parent_id is not None and isinstance(event, QUESTION_EVENTS):
            _notify_ancestors(tx, parent_id)
        if parent_id is not None and isinstance(event, TurnEnded | InputDropped | Trashed):
            notes += _end_child(tx, session_id, parent_id, event, at=at)
        notes += _update_parent(tx, session_id, event, at=at)
    return notes


def _notify_ancestors(tx: Transaction, parent_id: str) -> None:
    """Notify those who watch a session above that a question of a child was asked or is closed."""
    tx.notify(parent_id)
    for record in iterate_above(tx, parent_id):
        tx.notify(record.parent_id)


def _update_parent(tx: Transaction, parent_id: str, event: Event, *, at: int) -> list[Note]:
    match event:
        case ToolEnded(name=name) if name == TOOL:
            record = get_by_call(tx, parent_id, event.turn_id, event.call_id)
            return [] if record is None else _end_call(tx, record, event.outcome, at=at)
        case ModeChanged():
            return _lower_modes(tx, parent_id, event)
        case Ended() if event.reason not in KEPT_ENDS:
            _request_stop_all(tx, parent_id, "the session that delegated the task has ended")
            return _take_queued(tx, parent_id)
        case Trashed():
            _request_stop_all(tx, parent_id, "the session that delegated the task was moved to the trash")
            return _take_queued(tx, parent_id)
    return []


def _take_queued(tx: Transaction, parent_id: str) -> list[Note]:
    """Take the completions out of the queue of a session that is over: they must not wake it, so they become events."""
    notes: list[Note] = []
    for item in input_queue.list_waiting(tx, parent_id):
        if item.completions and item.said is not None and not item.said.parts:
            input_queue.delete(tx, parent_id, item.turn_id)
            notes += [(parent_id, event) for event in item.completions]
    return notes


def _lower_modes(tx: Transaction, parent_id: str, changed: ModeChanged) -> list[Note]:
    """Running children follow their parent to a less permissive mode, never to a more permissive one."""
    notes: list[Note] = []
    for child_id, text in tx.all("delegations.list_running_modes", parent=parent_id):
        before = cast("Mode", text)
        mode = least_permissive(before, changed.mode)
        if mode != before:
            notes.append((cast("str", child_id), ModeChanged(mode=mode, previous=before, by=changed.by)))
    return notes


def _end_call(tx: Transaction, record: DelegationRecord, outcome: Outcome, *, at: int) -> list[Note]:
    """The call that waits for a child has ended: it has returned the child's completion, or it was cut off."""
    if record.delivery != "call" or record.delivered_at is not None:
        return []
    if record.ended_at is not None and outcome != "unknown":
        tx.run("delegations.deliver", child=record.child_id, at=at)
        return []
    tx.run("delegations.set_delivery", child=record.child_id, delivery="note")
    if record.ended_at is not None:
        tx.run("delegations.deliver", child=record.child_id, at=at)
        return [(record.parent_id, _ended_event(record))]
    request_stop(tx, record.child_id, "the call that waited for it ended")
    return []


def _request_stop_all(tx: Transaction, parent_id: str, reason: str) -> None:
    tx.run("delegations.request_stop_all", parent=parent_id, reason=reason)
    tx.notify(TOPIC)


def _end_child(
    tx: Transaction, child_id: str, parent_id: str, event: TurnEnded | InputDropped | Trashed, *, at: int
) -> list[Note]:
    record = _record(tx.one("delegations.get_locked", session=child_id, parent=parent_id))
    if record is None or record.ended_at is not None:
        return []
    if isinstance(event, Trashed):
        return end(tx, record, "cancelled", "its session was moved to the trash", at=at)
    if event.turn_id != record.task_turn:
        return []
    if isinstance(event, InputDropped):
        return end(tx, record, "cancelled", "its task was withdrawn before it began", at=at)
    return end(tx, record, event.outcome, event.reason, at=at)


def end(tx: Transaction, record: DelegationRecord, outcome: TurnOutcome, reason: str, *, at: int) -> list[Note]:
    """Record the end of a child, once, and give the completion to its parent unless a call fetches it."""
    reason = record.stop_reason if outcome != "done" and record.stop_reason else reason
    reply = _last_reply(tx, record)
    parameters: dict[str, str | int] = {"outcome": outcome, "reason": dumps(reason), "reply": dumps(reply), "at": at}
    if tx.one("delegations.end", session=record.child_id, **parameters) is None:
        return []
    tx.notify(TOPIC)
    tx.notify(record.child_id)
    if record.delivery == "call":
        return []
    ended = get(tx, record.child_id)
    assert ended is not None, "it was updated in this transaction"
    tx.run("delegations.deliver", child=record.child_id, at=at)
    return _deliver(tx, ended, at=at)


def _deliver(tx: Transaction, record: DelegationRecord, *, at: int) -> list[Note]:
    """Give the completion to the parent: as input that wakes it, or as an event if nothing should act on it now."""
    parent = tx.one("delegations.get_parent", parent=record.parent_id)
    if parent is None:
        return []
    event = _ended_event(record)
    if record.delivery == "note" or any(when is not None for when in parent):
        return [(record.parent_id, event)]
    turn_id = derive(TURN, at, f"{record.child_id} ended")
    said = UserSaid(turn_id=turn_id, parts=())
    outbox.copy_reply_addresses(tx, record.parent_id, record.turn_id, turn_id)
    input_queue.put(tx, record.parent_id, Input(turn_id, "steer", said, before=(event,)), at=at)
    return []


def _ended_event(record: DelegationRecord) -> ChildEnded:
    return ChildEnded(
        child_id=record.child_id,
        call_id=record.call_id,
        outcome=cast("TurnOutcome", record.outcome),
        title=record.title,
        reason=record.reason,
        text=record.reply,
    )


def _last_reply(tx: Transaction, record: DelegationRecord) -> str:
    """The last text of the child's model in the turn of the task."""
    row = tx.one("delegations.find_last_reply", session=record.child_id)
    said = None if row is None else decode("model_said", cast("str", row[0]))
    if not isinstance(said, ModelSaid) or said.turn_id != record.task_turn:
        return ""
    text = text_of(said.parts).strip()
    return text if len(text) <= MAX_REPLY else f"{text[:MAX_REPLY]}\n[… {len(text) - MAX_REPLY:,} more characters]"


def _record(row: Row | None) -> DelegationRecord | None:
    return None if row is None else _decode(row)


def _records(rows: Sequence[Row]) -> list[DelegationRecord]:
    return [_decode(row) for row in rows]


def _decode(row: Row) -> DelegationRecord:
    """The record of a row. Reason and reply are JSON, because they may contain what PostgreSQL cannot store."""
    reason, reply = (loads(cast("str", text), str) if text else "" for text in row[REASON:DELIVERED])
    return DelegationRecord(*row[:REASON], reason, reply, *row[DELIVERED:])  # type: ignore[arg-type,call-arg] # the schema checks the types
