"""Each slot of a schedule has exactly one row with one result: after downtime, after kills, with two workers."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import msgspec
import pytest

from holdfast.clock import WatchedClock
from holdfast.cron import POSTPONE_DELAY, Cron, check_schedule, next_slot, plan_slots
from holdfast.model.errors import Invalid
from holdfast.model.times import MINUTE, SECOND, iso, micros, moment
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.repos import outbox, schedules, sessions, workers
from holdfast.store.repos.schedules import Schedule, ScheduleSlot
from tests.engine.stage import Stage, gone, set_up
from tests.fakes.clock import FakeClock

START = micros(datetime(2026, 6, 1, 7, 59, 30, tzinfo=UTC))


def schedule(cron: str = "0 8 * * *", **more: object) -> Schedule:
    given = {
        "id": "cron-1", "cron": cron, "timezone": "UTC", "prompt": "Good morning", "deliver": None, "model": None,
        "missed": "run", "next_at": next_slot(cron, str(more.get("timezone", "UTC")), START), "created_at": START, **more,
    }  # fmt: skip
    return Schedule(**given)  # type: ignore[arg-type]


async def slots(stage: Stage, schedule_id: str = "cron-1") -> list[ScheduleSlot]:
    found = await stage.database.read(schedules.list_slots, schedule_id, 100_000)
    return found[::-1]


async def scene(
    folder: Path, *steps: ScriptStep, clock: FakeClock | None = None, **more: object
) -> tuple[Stage, FakeClock, Cron]:
    clock = clock or FakeClock(START)
    stage = await set_up(folder, *steps, clock=clock, model="play" if steps else "echo", **more)  # type: ignore[arg-type]
    return stage, clock, Cron(stage.engine, "scripted:echo")


async def test_a_slot_runs_in_its_own_session_which_ends(tmp_path: Path) -> None:
    stage, clock, cron = await scene(tmp_path)
    await stage.database.write(schedules.add, schedule(deliver="telegram:42"))
    assert await cron.run_due() == 0
    clock.pass_seconds(40)
    assert await cron.run_due() == 1
    await stage.engine.settled()

    [slot] = await slots(stage)
    session = await stage.database.read(sessions.get, str(slot.session_id))
    assert (slot.state, iso(slot.due_at)[:16]) == ("done", "2026-06-01T08:00")
    assert (session.summary.source, session.summary.end_reason) == ("cron", "cron_complete")
    [delivery] = await stage.database.read(outbox.list_heads, "telegram")
    assert (delivery.chat, delivery.message.text) == ("42", "You said: Good morning")
    assert (await stage.database.read(schedules.get, "cron-1")).next_at == slot.due_at + 24 * 60 * MINUTE


async def test_with_two_workers_a_slot_runs_once(tmp_path: Path) -> None:
    stage, clock, one = await scene(tmp_path)
    other = await set_up(tmp_path, database=stage.database, clock=clock, model="echo")
    two = Cron(other.engine, "scripted:echo")
    for number in range(20):
        await stage.database.write(schedules.add, schedule("* * * * *", id=f"cron-{number}"))
    for _ in range(10):
        clock.pass_seconds(60)
        await asyncio.gather(one.run_due(), two.run_due())
        await stage.engine.settled()
        await other.engine.settled()

    for number in range(20):
        found = await slots(stage, f"cron-{number}")
        assert [slot.state for slot in found] == ["done"] * 10
        assert len({slot.session_id for slot in found}) == 10


@pytest.mark.parametrize(("missed", "last"), [("run", "done"), ("skip", "missed")])
async def test_after_a_downtime_every_slot_has_its_row(tmp_path: Path, missed: str, last: str) -> None:
    stage, clock, cron = await scene(tmp_path)
    await stage.database.write(schedules.add, schedule("*/10 * * * *", missed=missed))
    clock.pass_seconds(2 * 24 * 3600 + 400)  # six minutes past the newest slot
    await cron.run_due()
    await stage.engine.settled()

    found = await slots(stage)
    assert [slot.state for slot in found] == ["missed"] * (2 * 144) + [last]
    assert [slot.due_at for slot in found] == [found[0].due_at + place * 10 * MINUTE for place in range(289)]


async def test_a_long_downtime_is_recorded_in_several_transactions(tmp_path: Path) -> None:
    stage, clock, cron = await scene(tmp_path)
    await stage.database.write(schedules.add, schedule("* * * * *"))
    clock.pass_seconds(1800 * 60)
    await cron.run_due()
    await stage.engine.settled()

    assert Counter(slot.state for slot in await slots(stage)) == {"missed": 1799, "done": 1}


async def test_a_slot_that_is_due_while_the_previous_one_runs_is_skipped(tmp_path: Path) -> None:
    stage, clock, cron = await scene(tmp_path, ScriptStep(call=(ScriptedCall("sleep"),)), ScriptStep(say="done"))
    await stage.database.write(schedules.add, schedule("* * * * *"))
    clock.pass_seconds(60)
    await cron.run_due()
    await stage.hanging_tool.sleeping.wait()
    clock.pass_seconds(60)
    await cron.run_due()

    assert [slot.state for slot in await slots(stage)] == ["running", "skipped"]
    await stage.engine.close()


async def test_a_slot_whose_worker_died_is_finished_by_the_next_one(tmp_path: Path) -> None:
    stage, clock, cron = await scene(
        tmp_path, ScriptStep(call=(ScriptedCall("sleep"),)), ScriptStep(say="done"), who=gone()
    )
    await stage.database.write(schedules.add, schedule(deliver="telegram:42"))
    clock.pass_seconds(40)
    await cron.run_due()
    await stage.hanging_tool.sleeping.wait()
    stage.scheduler.abandon(Invalid("it is dead"))
    successor, _, _ = await scene(
        tmp_path,
        ScriptStep(call=(ScriptedCall("sleep"),)),
        ScriptStep(say="done"),
        database=stage.database,
        clock=clock,
    )
    await successor.janitor().sweep()
    await successor.engine.settled()

    [slot] = await slots(successor)
    session = await successor.database.read(sessions.get, str(slot.session_id))
    assert (slot.state, session.summary.end_reason) == ("done", "cron_complete")
    assert len(await successor.database.read(outbox.list_heads, "telegram")) == 1


async def test_a_slot_whose_session_was_abandoned_blocks_nothing(tmp_path: Path) -> None:
    stage, clock, cron = await scene(
        tmp_path, ScriptStep(call=(ScriptedCall("sleep"),)), ScriptStep(say="x"), who=gone()
    )
    await stage.database.write(schedules.add, schedule("* * * * *"))
    clock.pass_seconds(60)
    await cron.run_due()
    await stage.hanging_tool.sleeping.wait()
    stage.scheduler.abandon(Invalid("it is dead"))
    [slot] = await slots(stage)
    assert slot.state == "running"
    await stage.database.write(workers.mark_dead, stage.worker_id, "it is dead", at=clock.now())
    await stage.database.write(sessions.end, str(slot.session_id), "user", at=clock.now())
    successor, _, again = await scene(tmp_path, database=stage.database, clock=clock)
    clock.pass_seconds(60)
    await again.run_due()
    await successor.engine.settled()

    assert [one.state for one in await slots(successor)] == ["failed", "done"]


async def test_a_removed_schedule_stays_removed(tmp_path: Path) -> None:
    stage, clock, cron = await scene(tmp_path)
    await stage.database.write(schedules.add, schedule())
    known = await stage.database.read(schedules.get, "cron-1")
    assert await stage.database.write(schedules.remove, "cron-1", at=START)
    clock.pass_seconds(24 * 3600)
    await cron.run_due()

    assert not await stage.database.write(schedules.advance, known, known.next_at + 1)
    assert await slots(stage) == []


async def test_a_failed_turn_is_a_failed_slot(tmp_path: Path) -> None:
    stage, clock, cron = await scene(tmp_path, ScriptStep(fail="refused"))
    await stage.database.write(schedules.add, schedule(deliver="telegram:42"))
    clock.pass_seconds(40)
    await cron.run_due()
    await stage.engine.settled()

    [slot] = await slots(stage)
    [delivery] = await stage.database.read(outbox.list_heads, "telegram")
    assert slot.state == "failed"
    assert slot.reason
    assert "failed" in delivery.message.text


def local(cron: str, start: datetime, count: int) -> list[str]:
    at, found = micros(start), []
    for _ in range(count):
        at = next_slot(cron, "Europe/Berlin", at)
        found.append(moment(at).astimezone(ZoneInfo("Europe/Berlin")).strftime("%d %H:%M"))
    return found


def test_daylight_saving_neither_skips_nor_repeats_a_daily_slot() -> None:
    spring = datetime(2026, 3, 28, 12, tzinfo=UTC)
    autumn = datetime(2026, 10, 24, 12, tzinfo=UTC)

    assert local("0 8 * * *", spring, 2) == ["29 08:00", "30 08:00"]
    assert local("30 2 * * *", spring, 2) == ["29 03:00", "30 02:30"]
    assert local("30 2 * * *", autumn, 2) == ["25 02:30", "26 02:30"]
    assert local("0 * * * *", datetime(2026, 10, 24, 23, 30, tzinfo=UTC), 3) == ["25 02:00", "25 02:00", "25 03:00"]


@pytest.mark.parametrize("cron", ["", "0 8 * *", "61 * * * *", "0 8 * * * *", "hello", "@daily"])
def test_an_invalid_schedule_is_refused(cron: str) -> None:
    with pytest.raises(Invalid, match="five fields"):
        check_schedule(cron, "UTC")


def test_an_unknown_zone_is_refused() -> None:
    with pytest.raises(Invalid, match="unknown time zone"):
        check_schedule("0 8 * * *", "Mars/Olympus")


def test_a_date_that_never_occurs_is_refused() -> None:
    with pytest.raises(Invalid, match="never occurs"):
        next_slot("0 0 31 2 *", "UTC", START)


def test_a_slot_that_is_a_little_late_is_on_time_whatever_the_policy() -> None:
    found = plan_slots(schedule(missed="skip"), START + 30 * SECOND + 4 * MINUTE)

    assert (found.missed, found.start) == ([], START + 30 * SECOND)


DAYS = 24 * 3600


async def jumped(folder: Path, by: float) -> tuple[Stage, FakeClock, FakeClock, Cron]:
    """A worker with a schedule for every minute, whose system clock is ahead for 33 s."""
    own = FakeClock(START)
    clock = WatchedClock(own, own.monotonic)
    clock.now()
    stage = await set_up(folder, clock=clock, model="echo")  # type: ignore[arg-type] # it has the methods of a clock
    await stage.database.write(schedules.add, schedule("* * * * *"))
    cron = Cron(stage.engine, "scripted:echo")
    own.pass_seconds(31)
    await cron.run_due()
    await stage.engine.settled()
    own.set_by(by)
    for _ in range(33):
        own.pass_seconds(1)
        await cron.run_due()
    await stage.engine.settled()
    own.set_by(-by)
    return stage, own, own, cron


@pytest.mark.parametrize("by", [2 * DAYS, 400 * DAYS, -2 * DAYS])
async def test_a_clock_that_jumps_for_seconds_fires_nothing_early_misses_nothing_and_stops_nothing(
    tmp_path: Path, by: float
) -> None:
    stage, own, _, cron = await jumped(tmp_path, by)
    assert [slot.state for slot in await slots(stage)] == ["done"]
    assert (await stage.database.read(schedules.get, "cron-1")).next_at == START + 90 * SECOND
    own.pass_seconds(60)
    await cron.run_due()
    await stage.engine.settled()

    assert [slot.state for slot in await slots(stage)] == ["done", "done"]


@pytest.mark.slow
@pytest.mark.parametrize("ahead", [2 * DAYS, 400 * DAYS])
async def test_a_schedule_that_a_worker_with_a_wrong_clock_advanced_is_set_back(tmp_path: Path, ahead: float) -> None:
    stage, clock, cron = await scene(tmp_path)
    await stage.database.write(schedules.add, schedule("0 * * * *"))
    clock.set_by(ahead)
    await cron.run_due()
    await stage.engine.settled()
    false = await slots(stage)
    clock.set_by(-ahead)
    _, _, restarted = await scene(tmp_path, database=stage.database, clock=clock)
    await restarted.run_due()

    assert len([slot for slot in false if slot.state == "missed"]) == ahead // 3600 - 1
    assert (await stage.database.read(schedules.get, "cron-1")).next_at == START + 30 * SECOND
    assert [slot.state for slot in await slots(stage)] == ["done"], "only the slot that started"
    clock.pass_seconds(60)
    await restarted.run_due()
    assert iso((await slots(stage))[0].due_at)[:16] == "2026-06-01T08:00"


async def test_slots_that_a_wrong_clock_skipped_are_processed_by_the_right_one(tmp_path: Path) -> None:
    stage, clock, cron = await scene(tmp_path)
    await stage.database.write(schedules.add, schedule("0 * * * *"))
    clock.set_by(2 * DAYS)
    await cron.run_due()
    await stage.engine.settled()
    clock.set_by(-2 * DAYS)
    clock.pass_seconds(2 * 3600)  # 09:59:30: two of the slots are due by now
    successor, _, restarted = await scene(tmp_path, database=stage.database, clock=clock)
    await restarted.run_due()
    await successor.engine.settled()

    found = [slot for slot in await slots(stage) if slot.due_at < clock.now()]
    assert [(iso(slot.due_at)[11:16], slot.state) for slot in found] == [("08:00", "missed"), ("09:00", "done")]
    assert all(slot.began_at == clock.now() for slot in found)


async def test_a_slot_started_by_a_clock_ahead_does_not_start_again_at_its_time(tmp_path: Path) -> None:
    stage, clock, cron = await scene(tmp_path)
    await stage.database.write(schedules.add, schedule("0 * * * *"))
    clock.set_by(2 * 3600)
    await cron.run_due()
    await stage.engine.settled()
    clock.set_by(-2 * 3600)
    for _ in range(4):
        await cron.run_due()
        await stage.engine.settled()
        clock.pass_seconds(3600)

    found = await slots(stage)
    assert [iso(slot.due_at)[11:16] for slot in found] == ["08:00", "09:00", "10:00"]
    assert len({slot.session_id for slot in found}) == 3


async def test_a_schedule_with_an_unknown_time_zone_is_kept_and_blocks_no_other(tmp_path: Path) -> None:
    stage, clock, cron = await scene(tmp_path)
    unknown = schedule(id="cron-0", next_at=START + 20 * SECOND)
    await stage.database.write(schedules.add, msgspec.structs.replace(unknown, timezone="Mars/Olympus"))
    await stage.database.write(schedules.add, schedule())
    clock.pass_seconds(40)
    assert await cron.run_due() == 1
    await stage.engine.settled()

    [passed] = await slots(stage, "cron-0")
    assert (passed.state, passed.reason) == ("skipped", "unknown time zone 'Mars/Olympus'")
    assert (await stage.database.read(schedules.get, "cron-0")).next_at == clock.now() + POSTPONE_DELAY
    assert [slot.state for slot in await slots(stage)] == ["done"]
