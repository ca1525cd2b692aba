"""Schedules: prompts that run at set times. Each due time has exactly one slot row, with one outcome.

A slot is opened in the transaction that advances the schedule to its next slot and admits the prompt, and closed in the
transaction that ends the turn. A second worker finds nothing to do in either case.
"""

from collections.abc import Sequence
from typing import Literal, cast

import msgspec

from holdfast.model.errors import NotFound
from holdfast.model.times import MINUTE
from holdfast.store import id_prefix
from holdfast.store.database import Transaction

PREFIX = "cron-"
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
    terminal: str = ""
    """The terminal backend of its sessions; empty for the configured one."""


class ScheduleSlot(msgspec.Struct, frozen=True):
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
    return get(tx, id_prefix.resolve_prefix(tx, "schedules.by_prefix", ref, kind=PREFIX, what=what))


def list_all(tx: Transaction) -> list[Schedule]:
    """Schedules that were not removed, oldest first."""
    return [Schedule(*row) for row in tx.all("schedules.list_all")]  # type: ignore[arg-type] # the schema checks the types


def list_due(tx: Transaction, now: int, limit: int = 100) -> list[Schedule]:
    return [Schedule(*row) for row in tx.all("schedules.list_due", now=now, limit=limit)]  # type: ignore[arg-type] # the schema checks the types


def get_next_due(tx: Transaction) -> int | None:
    """When the next slot of any schedule is due."""
    row = tx.one("schedules.get_next_due")
    return None if row is None else cast("int | None", row[0])


def remove(tx: Transaction, schedule_id: str, *, at: int) -> bool:
    """Remove a schedule; False if it was already removed."""
    return tx.one("schedules.remove", id=schedule_id, at=at) is not None


def advance(tx: Transaction, schedule: Schedule, next_at: int) -> bool:
    """Advance to the next slot; False if another worker has, or the schedule was removed."""
    return tx.one("schedules.advance", id=schedule.id, slot=schedule.next_at, next_at=next_at) is not None


def move_back(tx: Transaction, schedule: Schedule, next_at: int, now: int) -> bool:
    """Go back to an earlier slot; False if another worker has changed the schedule.

    Slots that were skipped because a clock was ahead are deleted. The schedule goes back to the first of them, so that those
    that are due are handled with the right clock.
    """
    later = now + MINUTE
    row = tx.one("schedules.find_first_early_slot", schedule=schedule.id, later=later)
    first = next_at if row is None or row[0] is None else cast("int", row[0])
    if not advance(tx, schedule, min(next_at, first)):
        return False
    tx.run("schedules.delete_early_slots", schedule=schedule.id, now=now, later=later)
    return True


def has_slot(tx: Transaction, schedule_id: str, due_at: int) -> bool:
    """Whether the slot has a row."""
    return tx.one("schedules.get_slot", schedule=schedule_id, due_at=due_at) is not None


def open_slot(tx: Transaction, slot: ScheduleSlot) -> bool:
    """Record a due slot and its state; False if it has a row."""
    given = msgspec.structs.asdict(slot)
    names = {"schedule": given.pop("schedule_id"), "session": given.pop("session_id"), "turn": given.pop("turn_id")}
    return tx.one("schedules.open_slot", at=given.pop("began_at"), **names, **given) is not None


def skip_slots(
    tx: Transaction, schedule_id: str, slots: Sequence[int], state: SlotState, reason: str, *, at: int
) -> None:
    """Record slots that are not run."""
    for due_at in slots:
        open_slot(tx, ScheduleSlot(schedule_id, due_at, state, reason, None, None, at, at))


def is_running(tx: Transaction, schedule_id: str) -> bool:
    return tx.one("schedules.find_running_slot", schedule=schedule_id) is not None


def close_slot(tx: Transaction, session_id: str, turn_id: str, state: SlotState, reason: str, *, at: int) -> bool:
    """Record that the turn of a slot has ended; False if the turn has no running slot."""
    done = tx.one("schedules.close_slot", session=session_id, turn=turn_id, state=state, reason=reason, at=at)
    return done is not None


class OrphanSlot(msgspec.Struct, frozen=True):
    """A running slot whose session will not continue."""

    schedule_id: str
    due_at: int
    session_id: str
    turn_id: str
    quarantined: str | None


def list_orphan_slots(tx: Transaction) -> list[OrphanSlot]:
    """Running slots whose session is not active."""
    return [OrphanSlot(*row) for row in tx.all("schedules.list_orphan_slots")]  # type: ignore[arg-type] # the schema checks the types


def count_slots(tx: Transaction, schedule_id: str) -> dict[str, int]:
    """The number of slots of a schedule in each state."""
    return {cast("str", row[0]): cast("int", row[1]) for row in tx.all("schedules.count_slots", schedule=schedule_id)}


def list_slots(tx: Transaction, schedule_id: str, limit: int) -> list[ScheduleSlot]:
    """The newest slots first."""
    return [ScheduleSlot(*row) for row in tx.all("schedules.list_slots", schedule=schedule_id, limit=limit)]  # type: ignore[arg-type] # the schema checks the types
