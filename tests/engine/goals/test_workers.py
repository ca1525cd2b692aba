"""Which worker continues a goal, and that it is never two."""

import asyncio
from collections import Counter
from pathlib import Path

import pytest

from holdfast.engine.admission.open_session import OpenRequest
from holdfast.model.event import GoalChecked, Recovered, TurnStarted
from holdfast.store.repos import workers
from tests.contract.store_urls import KINDS, new_place, open_place
from tests.engine.goals.worker import GoalWorker, Script, decisions_in, goal_worker
from tests.engine.stage import gone
from tests.engine.well_formed import assert_well_formed


async def abandon(one: GoalWorker) -> None:
    """The worker is gone, as a sweep finds out."""
    await one.stage.database.write(workers.mark_dead, one.stage.worker_id, "killed", at=1)


@pytest.mark.parametrize("kind", KINDS)
async def test_promise_11_two_workers_never_continue_one_goal(tmp_path: Path, kind: str) -> None:
    place = new_place(kind, tmp_path, migrated=True)
    databases = [await open_place(place) for _ in range(3)]
    script = Script()
    async with (
        goal_worker(tmp_path, database=databases[0], script=script) as one,
        goal_worker(tmp_path, database=databases[1], script=script) as two,
        goal_worker(tmp_path, database=databases[2], script=script) as three,
    ):
        sessions = [await one.session() for _ in range(4)]
        for session in sessions:
            await one.set(session, "reach 4")
        for session in sessions:
            await three.until(session, "done")
        logs = [await two.stage.log(session) for session in sessions]
    for database in databases:
        await database.close()

    for log in logs:
        assert_well_formed(log)
        assert decisions_in(log) == ["continue"] * 3 + ["done"]
        assert set(Counter(event.after_turn for event in log if isinstance(event, GoalChecked)).values()) == {1}
        assert len([event for event in log if isinstance(event, TurnStarted)]) == 4


async def test_a_goal_of_the_api_is_continued_by_another_worker(tmp_path: Path) -> None:
    async with goal_worker(tmp_path, watches=False) as one:
        session = await one.session()
        await one.set(session, "reach 2")
        await one.stage.engine.settled()
        async with goal_worker(tmp_path, database=one.stage.database) as other:
            await other.until(session, "done")
            log = await other.stage.log(session)

    ran = [event.worker_id for event in log if isinstance(event, TurnStarted)]
    assert ran == [one.stage.worker_id, other.stage.worker_id]


async def test_a_goal_of_a_chat_is_continued_only_by_the_process_that_has_it_open(tmp_path: Path) -> None:
    async with goal_worker(tmp_path, watches=False, who=gone()) as one:
        session = await one.session(source="chat", own=True)
        await one.set(session, "reach 2")
        await one.stage.engine.settled()
        async with goal_worker(tmp_path, database=one.stage.database) as other:
            await other.stage.engine.goal_watch.look()
            await other.stage.engine.settled()
            assert other.script.checks == 0

            await other.stage.engine.open(OpenRequest(ref=session, own=True))
            await other.until(session, "done")
            log = await other.stage.log(session)

    assert decisions_in(log) == ["continue", "done"]


async def test_a_turn_of_a_goal_that_a_dead_chat_left_is_continued_by_the_next_one(tmp_path: Path) -> None:
    script = Script()
    async with goal_worker(tmp_path, watches=False, script=script, who=gone()) as one:
        session = await one.session(source="chat", own=True)
        await one.set(session, "slow reach 2")
        await one.stage.engine.drain(0)
        await abandon(one)
        script.holds_turn.set()
        async with goal_worker(tmp_path, database=one.stage.database, script=script) as other:
            await other.stage.janitor().sweep()
            reaped = await other.read(session)
            assert (reaped.summary.end_reason, reaped.summary.goal) == ("reaped", "active")
            await other.stage.engine.owned.keep(session, "it was resumed")
            await other.until(session, "done")
            log = await other.stage.log(session)

    assert_well_formed(log)
    assert [event.action for event in log if isinstance(event, Recovered)] == ["continue"]
    assert decisions_in(log) == ["continue", "done"]


async def test_a_worker_that_shuts_down_during_a_check_decides_nothing(tmp_path: Path) -> None:
    script = Script()
    async with goal_worker(tmp_path, script=script) as one:
        session = await one.session()
        script.holds_check.clear()
        await one.set(session, "reach 2")
        await script.checking.wait()
        draining = asyncio.create_task(one.stage.engine.drain(5))
        await asyncio.sleep(0)
        script.holds_check.set()
        await draining
        assert await one.decisions(session) == []
        async with goal_worker(tmp_path, database=one.stage.database) as other:
            await other.until(session, "done")
            assert await other.decisions(session) == ["continue", "done"]
