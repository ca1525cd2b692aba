"""Each time a schedule is due has exactly one row, with one end: after downtime, after deaths, with two workers."""

import asyncio
from collections import Counter
from datetime import UTC, datetime
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest

from holdfast.cron import Cron, check, following, plan
from holdfast.model.errors import Invalid
from holdfast.model.times import MINUTE, SECOND, iso, micros, moment
from holdfast.providers.scripted import Call, Step
from holdfast.store import outbox, schedules, sessions, workers
from holdfast.store.schedules import Schedule, Slot
from tests.engine.stage import Stage, gone, set_up
from tests.fakes.clock import FakeClock

START = micros(datetime(2026, 6, 1, 7, 59, 30, tzinfo=UTC))


def schedule(cron: str = "0 8 * * *", **more: object) -> Schedule:
    given = {
        "id": "cron-1", "cron": cron, "timezone": "UTC", "prompt": "Good morning", "deliver": None, "model": None,
        "missed": "run", "next_at": following(cron, str(more.get("timezone", "UTC")), START), "created_at": START, **more,
    }  # fmt: skip
    return Schedule(**given)  # type: ignore[arg-type]


async def slots(stage: Stage, schedule_id: str = "cron-1") -> list[Slot]:
    found = await stage.database.read(schedules.slots, schedule_id, 100_000)
    return found[::-1]


async def scene(
    folder: Path, *steps: Step, clock: FakeClock | None = None, **more: object
) -> tuple[Stage, FakeClock, Cron]:
    clock = clock or FakeClock(START)
    stage = await set_up(folder, *steps, clock=clock, model="play" if steps else "echo", **more)  # type: ignore[arg-type]
    return stage, clock, Cron(stage.engine, "scripted:echo")


async def test_a_slot_is_played_in_a_session_of_its_own_that_ends(tmp_path: Path) -> None:
    stage, clock, cron = await scene(tmp_path)
    await stage.database.write(schedules.add, schedule(deliver="telegram:42"))
    assert await cron.look() == 0
    clock.pass_seconds(40)
    assert await cron.look() == 1
    await stage.engine.settled()

    [slot] = await slots(stage)
    session = await stage.database.read(sessions.get, str(slot.session_id))
    assert (slot.state, iso(slot.due_at)[:16]) == ("done", "2026-06-01T08:00")
    assert (session.summary.source, session.summary.end_reason) == ("cron", "cron_complete")
    [delivery] = await stage.database.read(outbox.heads, "telegram")
    assert (delivery.chat, delivery.message.text) == ("42", "You said: Good morning")
    assert (await stage.database.read(schedules.get, "cron-1")).next_at == slot.due_at + 24 * 60 * MINUTE


async def test_two_workers_share_a_slot_once(tmp_path: Path) -> None:
    stage, clock, one = await scene(tmp_path)
    other = await set_up(tmp_path, database=stage.database, clock=clock, model="echo")
    two = Cron(other.engine, "scripted:echo")
    for number in range(20):
        await stage.database.write(schedules.add, schedule("* * * * *", id=f"cron-{number}"))
    for _ in range(10):
        clock.pass_seconds(60)
        await asyncio.gather(one.look(), two.look())
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
    await cron.look()
    await stage.engine.settled()

    found = await slots(stage)
    assert [slot.state for slot in found] == ["missed"] * (2 * 144) + [last]
    assert [slot.due_at for slot in found] == [found[0].due_at + place * 10 * MINUTE for place in range(289)]


async def test_a_long_downtime_is_written_down_piece_by_piece(tmp_path: Path) -> None:
    stage, clock, cron = await scene(tmp_path)
    await stage.database.write(schedules.add, schedule("* * * * *"))
    clock.pass_seconds(1800 * 60)
    await cron.look()
    await stage.engine.settled()

    assert Counter(slot.state for slot in await slots(stage)) == {"missed": 1799, "done": 1}


async def test_a_slot_that_comes_while_the_one_before_runs_is_skipped(tmp_path: Path) -> None:
    stage, clock, cron = await scene(tmp_path, Step(call=(Call("sleep"),)), Step(say="done"))
    await stage.database.write(schedules.add, schedule("* * * * *"))
    clock.pass_seconds(60)
    await cron.look()
    await stage.sleeper.sleeping.wait()
    clock.pass_seconds(60)
    await cron.look()

    assert [slot.state for slot in await slots(stage)] == ["running", "skipped"]
    await stage.engine.close()


async def test_a_slot_whose_worker_died_is_finished_by_the_next_one(tmp_path: Path) -> None:
    stage, clock, cron = await scene(tmp_path, Step(call=(Call("sleep"),)), Step(say="done"), who=gone())
    await stage.database.write(schedules.add, schedule(deliver="telegram:42"))
    clock.pass_seconds(40)
    await cron.look()
    await stage.sleeper.sleeping.wait()
    stage.coordinator.abandon(Invalid("it is dead"))
    heir, _, _ = await scene(
        tmp_path, Step(call=(Call("sleep"),)), Step(say="done"), database=stage.database, clock=clock
    )
    await heir.janitor().sweep()
    await heir.engine.settled()

    [slot] = await slots(heir)
    session = await heir.database.read(sessions.get, str(slot.session_id))
    assert (slot.state, session.summary.end_reason) == ("done", "cron_complete")
    assert len(await heir.database.read(outbox.heads, "telegram")) == 1


async def test_a_slot_whose_session_was_given_up_holds_back_nothing(tmp_path: Path) -> None:
    stage, clock, cron = await scene(tmp_path, Step(call=(Call("sleep"),)), Step(say="x"), who=gone())
    await stage.database.write(schedules.add, schedule("* * * * *"))
    clock.pass_seconds(60)
    await cron.look()
    await stage.sleeper.sleeping.wait()
    stage.coordinator.abandon(Invalid("it is dead"))
    [slot] = await slots(stage)
    assert slot.state == "running"
    await stage.database.write(workers.bury, stage.worker_id, "it is dead", at=clock.now())
    await stage.database.write(sessions.end, str(slot.session_id), "user", at=clock.now())
    heir, _, again = await scene(tmp_path, database=stage.database, clock=clock)
    clock.pass_seconds(60)
    await again.look()
    await heir.engine.settled()

    assert [one.state for one in await slots(heir)] == ["failed", "done"]


async def test_a_removed_schedule_stays_removed(tmp_path: Path) -> None:
    stage, clock, cron = await scene(tmp_path)
    await stage.database.write(schedules.add, schedule())
    known = await stage.database.read(schedules.get, "cron-1")
    assert await stage.database.write(schedules.remove, "cron-1", at=START)
    clock.pass_seconds(24 * 3600)
    await cron.look()

    assert not await stage.database.write(schedules.advance, known, known.next_at + 1)
    assert await slots(stage) == []


async def test_a_failed_turn_is_a_failed_slot(tmp_path: Path) -> None:
    stage, clock, cron = await scene(tmp_path, Step(fail="refused"))
    await stage.database.write(schedules.add, schedule(deliver="telegram:42"))
    clock.pass_seconds(40)
    await cron.look()
    await stage.engine.settled()

    [slot] = await slots(stage)
    [delivery] = await stage.database.read(outbox.heads, "telegram")
    assert slot.state == "failed"
    assert slot.reason
    assert "failed" in delivery.message.text


def local(cron: str, start: datetime, count: int) -> list[str]:
    at, found = micros(start), []
    for _ in range(count):
        at = following(cron, "Europe/Berlin", at)
        found.append(moment(at).astimezone(ZoneInfo("Europe/Berlin")).strftime("%d %H:%M"))
    return found


def test_clocks_that_are_set_neither_skip_nor_repeat_a_daily_slot() -> None:
    spring = datetime(2026, 3, 28, 12, tzinfo=UTC)
    autumn = datetime(2026, 10, 24, 12, tzinfo=UTC)

    assert local("0 8 * * *", spring, 2) == ["29 08:00", "30 08:00"]
    assert local("30 2 * * *", spring, 2) == ["29 03:00", "30 02:30"]
    assert local("30 2 * * *", autumn, 2) == ["25 02:30", "26 02:30"]
    assert local("0 * * * *", datetime(2026, 10, 24, 23, 30, tzinfo=UTC), 3) == ["25 02:00", "25 02:00", "25 03:00"]


@pytest.mark.parametrize("cron", ["", "0 8 * *", "61 * * * *", "0 8 * * * *", "hello", "@daily"])
def test_what_is_no_schedule_is_refused(cron: str) -> None:
    with pytest.raises(Invalid, match="five fields"):
        check(cron, "UTC")


def test_a_zone_that_is_none_is_refused() -> None:
    with pytest.raises(Invalid, match="no time zone"):
        check("0 8 * * *", "Mars/Olympus")


def test_a_date_that_never_comes_is_refused() -> None:
    with pytest.raises(Invalid, match="never comes"):
        following("0 0 31 2 *", "UTC", START)


def test_a_slot_that_is_a_little_late_is_on_time_whatever_the_policy() -> None:
    found = plan(schedule(missed="skip"), START + 30 * SECOND + 4 * MINUTE)

    assert (found.missed, found.begin) == ([], START + 30 * SECOND)
