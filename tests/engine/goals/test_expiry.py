"""The time limit of a goal: expiry, jumps of the clock, and goals that nobody works on for weeks."""

import asyncio
from pathlib import Path

import pytest

from holdfast.clock import SETTLE_SECONDS, WatchedClock
from holdfast.model.errors import Conflict
from holdfast.model.event import Ended, GoalEnded
from holdfast.model.times import DAY
from holdfast.store.database import Transaction
from holdfast.store.repos import log
from tests.engine.goals.worker import GoalWorker, Script, goal_worker
from tests.fakes.clock import FakeClock

HOUR = 3600.0
WEEKS = 21 * 24 * HOUR


async def hold(one: GoalWorker, **changes: float) -> str:
    """A session whose goal is in the middle of its first check."""
    session = await one.session()
    one.script.holds_check.clear()
    await one.set(session, "reach 3", **changes)
    await one.script.checking.wait()
    return session


async def test_a_goal_expires_at_its_deadline_and_no_turn_follows(tmp_path: Path) -> None:
    clock = FakeClock()
    async with goal_worker(tmp_path, clock=clock) as one:
        session = await hold(one, max_hours=2.0)
        clock.pass_seconds(2 * HOUR)
        one.script.holds_check.set()
        goal = await one.until(session, "expired")

        assert goal.reason == "its time limit was reached"
        assert len(await one.turns(session)) == 1


async def test_a_paused_goal_expires_too_and_cannot_be_resumed_weeks_later(tmp_path: Path) -> None:
    clock = FakeClock()
    async with goal_worker(tmp_path, clock=clock, watches=False) as one:
        session = await one.session()
        await one.set(session, "reach 3")
        await one.stage.engine.settled()
        await one.stage.engine.goals.pause(session, by="test")
        clock.pass_seconds(WEEKS)
        with pytest.raises(Conflict, match="expired"):
            await one.stage.engine.goals.resume(session, by="test")

        for _ in range(2):
            await one.stage.engine.goal_watch.look()
        log_ = await one.stage.log(session)

    assert [event.outcome for event in log_ if isinstance(event, GoalEnded)] == ["expired"], "once"


async def test_a_goal_whose_worker_died_weeks_ago_is_not_continued(tmp_path: Path) -> None:
    clock = FakeClock()
    async with goal_worker(tmp_path, clock=clock, watches=False) as one:
        session = await one.session()
        await one.set(session, "reach 3")
        await one.stage.engine.settled()
        clock.pass_seconds(WEEKS)
        assert (await one.goal(session)).due

        await one.stage.engine.goal_watch.look()
        await one.stage.engine.settled()

        assert (await one.goal(session)).state == "expired"
        assert one.script.checks == 0
        assert len(await one.turns(session)) == 1


async def test_the_running_turn_goes_on_when_the_goal_expires(tmp_path: Path) -> None:
    clock, script = FakeClock(), Script()
    async with goal_worker(tmp_path, clock=clock, script=script) as one:
        session = await one.session()
        await one.set(session, "slow reach 3", max_hours=0.01)
        clock.pass_seconds(0.005 * HOUR)
        clock.set_by(HOUR)
        await one.stage.engine.goal_watch.look()
        assert (await one.goal(session)).state == "expired"
        assert (await one.read(session)).summary.open_turn is not None
        script.holds_turn.set()
        await one.until(session, "expired")

        assert await one.turns(session) == ["done"]
        assert one.script.checks == 0


@pytest.mark.parametrize("seconds", [WEEKS, -WEEKS])
async def test_promise_10_a_jump_of_the_clock_neither_ends_nor_extends_a_goal(tmp_path: Path, seconds: float) -> None:
    own = FakeClock()
    clock = WatchedClock(own, own.monotonic)
    clock.now()
    async with goal_worker(tmp_path, clock=clock) as one:
        session = await hold(one, max_hours=2.0)
        deadline = (await one.goal(session)).deadline_at
        own.set_by(seconds)
        await one.stage.engine.goal_watch.look()
        assert (await one.goal(session)).state == "active"
        own.pass_seconds(SETTLE_SECONDS / 2)
        own.set_by(-seconds)
        one.script.holds_check.set()
        goal = await one.until(session, "done")
        assert (goal.deadline_at, goal.turns) == (deadline, 3)

        second = await hold(one, max_hours=2.0)
        for _ in range(30):
            own.set_by(seconds)
            clock.now()
            own.pass_seconds(SETTLE_SECONDS / 2)
            own.set_by(-seconds)
            clock.now()
        one.script.holds_check.set()
        assert (await one.until(second, "expired")).turns == 1, "it gets no more time either"


async def test_a_session_that_was_reaped_keeps_its_goal_only_until_the_deadline(tmp_path: Path) -> None:
    clock = FakeClock()
    async with goal_worker(tmp_path, clock=clock, watches=False) as one:
        session = await one.session(source="chat", own=True)
        await one.set(session, "reach 3")
        await one.stage.engine.settled()

        def reap(tx: Transaction) -> None:
            log.append_unheld(tx, session, [Ended(reason="reaped")], at=clock.now())

        await one.stage.database.write(reap)
        await one.stage.engine.goal_watch.look()
        await one.stage.engine.settled()
        assert (await one.goal(session)).state == "active"
        assert one.script.checks == 0, "an ended session is not continued"

        clock.pass_seconds(DAY / 1_000_000)
        await one.stage.engine.goal_watch.look()
        assert (await one.goal(session)).state == "expired"


async def test_a_failed_check_waits_before_it_is_repeated(tmp_path: Path) -> None:
    clock = FakeClock()
    async with goal_worker(tmp_path, clock=clock, watches=False) as one:
        session = await one.session()
        await one.set(session, "break")
        await one.stage.engine.settled()
        watch = one.stage.engine.goal_watch
        for attempt in (1, 2, 3):
            await watch.look()
            await settled(one)
            await watch.look()
            await settled(one)
            assert one.script.checks == attempt, "a second look at once does not check again"
            clock.pass_seconds(60)

        assert (await one.goal(session)).state == "paused"


async def settled(one: GoalWorker) -> None:
    """Wait until no check runs."""
    while one.stage.engine.goal_watch.is_checking:
        await asyncio.sleep(0)
        await one.stage.engine.settled()
