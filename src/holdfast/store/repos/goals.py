"""The newest goal of each session, in a row that is folded from the log in the transactions that append to it."""

from collections.abc import Sequence
from typing import cast

import msgspec

from holdfast.model.entry import dumps, loads
from holdfast.model.event import Event
from holdfast.model.goal import GOAL_EVENTS, Goal, fold_goal
from holdfast.store.database import Transaction

TOPIC = "goals"
"""Notified when a goal has changed."""


def get(tx: Transaction, session_id: str) -> Goal | None:
    """The newest goal of the session, also one that has ended."""
    row = tx.one("goals.get", session=session_id)
    return None if row is None else _decode(cast("str", row[0]))


def get_locked(tx: Transaction, session_id: str) -> Goal | None:
    """Like `get`, for a transaction that changes the goal: it waits for others that write to the session."""
    tx.one("log.lock_any", session=session_id)
    return get(tx, session_id)


def after_append(tx: Transaction, session_id: str, events: Sequence[Event], *, at: int) -> None:
    """Update the row of a session to which events were appended."""
    moved = [event for event in events if type(event) in GOAL_EVENTS]
    if not moved:
        return
    before = goal = get(tx, session_id)
    for event in moved:
        goal = fold_goal(goal, event, at)
    tx.notify(TOPIC)
    if goal == before:
        return
    if goal is None:
        tx.run("goals.delete", session=session_id)
        return
    tx.run(
        "goals.put",
        session=session_id,
        state=goal.state,
        due=int(goal.due),
        deadline_at=goal.deadline_at,
        runner=goal.worker_id,
        body=dumps(msgspec.to_builtins(goal)),
    )


def list_due(tx: Transaction, worker_id: str, *, at: int) -> list[str]:
    """Sessions without an open turn whose goals this worker should check."""
    return [cast("str", row[0]) for row in tx.all("goals.list_due", holder=worker_id, at=at)]


def list_interrupted(tx: Transaction, worker_id: str, *, at: int) -> list[str]:
    """Sessions of this worker whose turn for a goal was left by another worker."""
    return [cast("str", row[0]) for row in tx.all("goals.list_interrupted", holder=worker_id, at=at)]


def list_expired(tx: Transaction, *, at: int) -> list[str]:
    """Sessions whose goals have reached their deadlines and have not ended."""
    return [cast("str", row[0]) for row in tx.all("goals.list_expired", at=at)]


def get_next_deadline(tx: Transaction) -> int | None:
    """The earliest deadline of a goal that has not ended."""
    row = tx.one("goals.get_next_deadline")
    return None if row is None else cast("int | None", row[0])


def _decode(body: str) -> Goal:
    return loads(body, Goal)
