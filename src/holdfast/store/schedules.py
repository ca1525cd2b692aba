"""Schedules: prompts that are said at set times. Each time one is due has exactly one row, with one end.

A slot is begun in the transaction that moves the schedule on to the next one and admits the prompt, and ended in the
transaction that ends the turn. Whoever is second at either finds nothing to do.
"""

from collections.abc import Sequence
from typing import Literal, cast

import msgspec

from holdfast.model.errors import NotFound
from holdfast.store import refs
from holdfast.store.database import Transaction

PREFIX = "cron-"
SHORTEST = 4
Missed = Literal["run", "skip"]
SlotState = Literal["running", "done", "failed", "missed", "skipped"]


class Schedule(msgspec.Struct, frozen=True):
    """A row of the schedule table, in the order of its columns."""

    id: str
    cron: str
    timezone: str
    prompt: str
    deliver: str | None
    model: str | None
    missed: Missed
    next_at: int
    created_at: int
    removed_at: int | None = None


class Slot(msgspec.Struct, frozen=True):
    """A row of the slot table, in the order of its columns."""

    schedule_id: str
    due_at: int
    state: SlotState
    reason: str
    session_id: str | None
    turn_id: str | None
    began_at: int
    ended_at: int | None


def add(tx: Transaction, schedule: Schedule) -> None:
    given = msgspec.structs.asdict(schedule)
    del given["removed_at"]
    tx.run("schedules.add", at=given.pop("created_at"), **given)
    tx.notify("schedules")


def get(tx: Transaction, schedule_id: str) -> Schedule:
    """Raises NotFound."""
    row = tx.one("schedules.get", id=schedule_id)
    if row is None:
        raise NotFound(f"there is no schedule {schedule_id}")
    return Schedule(*row)  # type: ignore[arg-type] # the schema checks the types


def resolve(tx: Transaction, ref: str) -> Schedule:
    """The schedule of an id or of the beginning of one. Raises NotFound, or Ambiguous with the candidates."""
    what = ("schedule", "schedules")
    return get(tx, refs.find(tx, "schedules.by_prefix", ref, kind=PREFIX, shortest=SHORTEST, what=what))


def every(tx: Transaction) -> list[Schedule]:
    """Those that were not removed, oldest first."""
    return [Schedule(*row) for row in tx.all("schedules.all")]  # type: ignore[arg-type] # the schema checks the types


def due(tx: Transaction, now: int, limit: int = 100) -> list[Schedule]:
    return [Schedule(*row) for row in tx.all("schedules.due", now=now, limit=limit)]  # type: ignore[arg-type] # the schema checks the types


def next_due(tx: Transaction) -> int | None:
    """When the next slot of any schedule is due."""
    row = tx.one("schedules.next_due")
    return None if row is None else cast("int | None", row[0])


def remove(tx: Transaction, schedule_id: str, *, at: int) -> bool:
    """False if that was done before."""
    return tx.one("schedules.remove", id=schedule_id, at=at) is not None


def advance(tx: Transaction, schedule: Schedule, next_at: int) -> bool:
    """Go on to the next slot; False if somebody else has, or the schedule was removed."""
    return tx.one("schedules.advance", id=schedule.id, slot=schedule.next_at, next_at=next_at) is not None


def open_slot(tx: Transaction, slot: Slot) -> bool:
    """Write down that a slot was due and what becomes of it; False if that was done before."""
    given = msgspec.structs.asdict(slot)
    names = {"schedule": given.pop("schedule_id"), "session": given.pop("session_id"), "turn": given.pop("turn_id")}
    return tx.one("schedules.open_slot", at=given.pop("began_at"), **names, **given) is not None


def pass_over(
    tx: Transaction, schedule_id: str, slots: Sequence[int], state: SlotState, reason: str, *, at: int
) -> None:
    """Write down slots for which nothing is done."""
    for due_at in slots:
        open_slot(tx, Slot(schedule_id, due_at, state, reason, None, None, at, at))


def is_running(tx: Transaction, schedule_id: str) -> bool:
    return tx.one("schedules.running", schedule=schedule_id) is not None


def close_slot(tx: Transaction, session_id: str, turn_id: str, state: SlotState, reason: str, *, at: int) -> bool:
    """The turn of a slot has ended; False if it is no slot's, or that was written down before."""
    done = tx.one("schedules.close_slot", session=session_id, turn=turn_id, state=state, reason=reason, at=at)
    return done is not None


class Orphan(msgspec.Struct, frozen=True):
    """A slot with whose session nobody will go on."""

    schedule_id: str
    due_at: int
    session_id: str
    turn_id: str
    quarantined: str | None


def orphans(tx: Transaction) -> list[Orphan]:
    """Slots that run although nothing goes on in their session."""
    return [Orphan(*row) for row in tx.all("schedules.orphans")]  # type: ignore[arg-type] # the schema checks the types


def counts(tx: Transaction, schedule_id: str) -> dict[str, int]:
    """How many slots of a schedule are in each state."""
    return {cast("str", row[0]): cast("int", row[1]) for row in tx.all("schedules.counts", schedule=schedule_id)}


def slots(tx: Transaction, schedule_id: str, limit: int) -> list[Slot]:
    """The newest first."""
    return [Slot(*row) for row in tx.all("schedules.slots", schedule=schedule_id, limit=limit)]  # type: ignore[arg-type] # the schema checks the types
