"""Kill the worker of a goal around every commit of its cycle, and let another one continue it."""

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from holdfast.model.event import GoalChecked, GoalEnded, GoalSet, TurnStarted, UserSaid
from holdfast.store.repos import workers
from tests.contract.store_urls import new_place, open_place
from tests.engine.goals.worker import GoalWorker, decisions_in, goal_worker
from tests.engine.well_formed import assert_well_formed
from tests.fakes.crashing import Crash, CrashingDatabase
from tests.sampling import every_nth

When = Literal["before", "after"]
COMMITS = 24
"""At least the commits of a goal of three turns; counted by the last test."""
CASES = [
    (kind, nth, when)
    for kind in ("sqlite", "postgres")
    for when in ("before", "after")
    for nth in range(1, COMMITS + 1)
]


async def play(place: str, folder: Path, nth: int, when: When) -> tuple[str | None, CrashingDatabase]:
    """Work on a goal until the nth commit kills the worker; returns the session and the store of the dead worker."""
    # A dead process reports no unawaited tasks.
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    dying = CrashingDatabase(await open_place(place), nth, when)
    session = None
    try:
        async with goal_worker(folder, database=dying) as one:
            session = await one.session()
            work = asyncio.create_task(finish(one, session))
            while not dying.dead and not work.done():
                await asyncio.sleep(0.005)
            work.cancel()
            await asyncio.wait({work})
            if dying.dead:
                raise Crash
    except Crash:
        pass
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=5)
    await dying.close()
    return session, dying


async def finish(one: GoalWorker, session: str) -> None:
    await one.set(session, "reach 3")
    await one.until(session, "done")


@asynccontextmanager
async def recovered(place: str, folder: Path) -> AsyncIterator[GoalWorker]:
    """Another worker, which finds what the dead one left."""
    database = await open_place(place)
    async with goal_worker(folder, database=database) as one:
        for worker in await database.read(workers.list_alive):
            if worker.id != one.stage.worker_id:
                await database.write(workers.mark_dead, worker.id, "killed", at=1)
        await one.stage.janitor().sweep()
        await one.stage.engine.goal_watch.look()
        yield one
    await database.close()


@pytest.mark.parametrize(
    ("kind", "nth", "when"),
    [pytest.param(*case, marks=[pytest.mark.process] if case[0] == "postgres" else []) for case in every_nth(CASES, 7)],
)
async def test_promise_1_a_goal_continues_once_whichever_commit_kills_its_worker(
    tmp_path: Path, kind: str, nth: int, when: When
) -> None:
    place = new_place(kind, tmp_path, migrated=True)
    session, _ = await play(place, tmp_path, nth, when)
    if session is None:
        return  # it died before the session was acknowledged

    async with recovered(place, tmp_path) as one:
        log = await one.stage.log(session)
        if not any(isinstance(event, UserSaid) for event in log):
            return  # it died before the goal was acknowledged
        goal = await one.until(session, "done")
        log = await one.stage.log(session)

    assert_well_formed(log)
    assert len([event for event in log if isinstance(event, GoalSet)]) == 1
    assert len([event for event in log if isinstance(event, GoalEnded)]) == 1
    assert decisions_in(log) == ["continue", "continue", "done"], "each turn is checked once, and continues once"
    assert goal.turns == 3
    assert len([event for event in log if isinstance(event, TurnStarted)]) == 3
    checked = Counter(event.after_turn for event in log if isinstance(event, GoalChecked))
    assert set(checked.values()) == {1}


async def test_the_cases_cover_every_commit(tmp_path: Path) -> None:
    place = new_place("sqlite", tmp_path, migrated=True)
    _, store = await play(place, tmp_path, 10_000, "before")

    assert not store.dead
    assert 8 <= 10_000 - store.left <= COMMITS, f"{10_000 - store.left} commits"
