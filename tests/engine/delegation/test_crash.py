"""Kill the worker of the parent, that of the children, or one that runs both, around every commit of a delegation."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Literal

import pytest

from holdfast.model.event import ChildStarted, TurnEnded, UserSaid
from holdfast.store.database import Database
from holdfast.store.repos import delegations, workers
from holdfast.tasks import running
from tests.contract.store_urls import new_place, open_place
from tests.engine.delegation.family import Family, completions_in, family
from tests.engine.well_formed import assert_well_formed
from tests.fakes.crashing import Crash, CrashingDatabase
from tests.sampling import every_nth

Side = Literal["both", "parent", "child"]
When = Literal["before", "after"]
CALLS = ({"task": "do one"}, {"task": 'use mail {"to": "bo"}'}, {"task": "do three", "background": True})
COMMITS: dict[Side, int] = {"both": 30, "parent": 15, "child": 20}
"""At least the commits of the worker on each side, in any order; counted by the last test."""
CASES = [
    (kind, side, nth, when)
    for kind in ("sqlite", "postgres")
    for side in COMMITS
    for when in ("before", "after")
    for nth in range(1, COMMITS[side] + 1)
]


async def serve_children(parent: str, one: Family) -> None:
    """Run the children of a parent that another worker runs, as a janitor would."""
    async for _ in one.stage.database.listen(delegations.TOPIC):
        for record in await one.children(parent):
            if record.ended_at is None:
                one.stage.engine.take_up(record.child_id)


async def play(place: str, folder: Path, side: Side, nth: int, when: When) -> tuple[str | None, str, CrashingDatabase]:
    """Delegate until the nth commit kills the worker on that side; returns the parent, the dead worker and its store."""
    # A dead process reports no unawaited tasks.
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    dying = CrashingDatabase(await open_place(place), nth, when)
    other = await open_place(place)
    databases: tuple[Database, Database] = (dying, other) if side != "child" else (other, dying)
    parent = None
    worker = ""
    try:
        async with family(folder, database=databases[0], watches=side == "both") as delegating:
            worker = delegating.stage.worker_id
            parent = await delegating.parent()
            if side == "both":
                await finish(delegating, parent, dying)
            else:
                async with family(folder, database=databases[1], watches=False) as serving:
                    worker = worker if side == "parent" else serving.stage.worker_id
                    async with running(serve_children(parent, serving)):
                        await finish(delegating, parent, dying)
    except Crash:
        pass
    await abandon()
    await dying.close()
    await other.close()
    return parent, worker, dying


async def finish(delegating: Family, parent: str, dying: CrashingDatabase) -> None:
    """Delegate, and wait until all is done or the worker is dead."""
    turn = asyncio.create_task(delegating.delegate(parent, *CALLS))
    try:
        while not dying.dead and not turn.done():
            await asyncio.sleep(0.005)
        while not dying.dead and not all(record.delivered_at for record in await delegating.children(parent)):
            await asyncio.sleep(0.005)
        if not dying.dead:
            await delegating.stage.engine.settled()
    finally:
        turn.cancel()
        await asyncio.wait({turn})
    if dying.dead:
        raise Crash


async def abandon() -> None:
    """Kill what is left of the dead process."""
    left = asyncio.all_tasks() - {asyncio.current_task()}
    for task in left:
        task.cancel()
    if left:
        await asyncio.wait(left, timeout=5)


@asynccontextmanager
async def recovered(place: str, folder: Path, dead: str) -> AsyncIterator[Family]:
    """Another worker, which finds everything that the dead ones left."""
    database = await open_place(place)
    async with family(folder, database=database) as one:
        for worker in await database.read(workers.list_alive):
            if worker.id != one.stage.worker_id:
                await database.write(workers.mark_dead, worker.id, "killed", at=1)
        await one.stage.janitor().sweep()
        yield one
    await database.close()


@pytest.mark.parametrize(
    ("kind", "side", "nth", "when"),
    [pytest.param(*case, marks=[pytest.mark.process] if case[0] == "postgres" else []) for case in every_nth(CASES, 9)],
)
async def test_promise_30_a_child_runs_and_completes_once_whichever_commit_kills_a_side(
    tmp_path: Path, kind: str, side: Side, nth: int, when: When
) -> None:
    place = new_place(kind, tmp_path, migrated=True)
    parent, dead, _ = await play(place, tmp_path, side, nth, when)
    if parent is None:
        return  # it died before the session was acknowledged

    async with recovered(place, tmp_path, dead) as one:
        async with asyncio.timeout(40):
            await one.quiet()
        log = await one.stage.log(parent)
        if not any(isinstance(event, UserSaid) for event in log):
            return  # it died before the message was acknowledged
        records = await one.children(parent)
        logs = [await one.stage.log(record.child_id) for record in records]

    assert_well_formed(log)
    started = [event.child_id for event in log if isinstance(event, ChildStarted)]
    assert sorted(started) == sorted(record.child_id for record in records), "one child for each call that started one"
    assert len(started) == len(CALLS)
    assert all(record.delivered_at is not None for record in records)
    assert sorted(completions_in(log)) == sorted(started), "each completion arrived exactly once"
    assert isinstance(log[-1], TurnEnded)
    assert log[-1].outcome == "done"
    for child in logs:
        assert_well_formed(child)
        assert [event.outcome for event in child if isinstance(event, TurnEnded)] == ["done"]
        assert len([event for event in child if isinstance(event, UserSaid)]) == 1
    mails = (tmp_path / "outbox").read_text().count("bo") if (tmp_path / "outbox").exists() else 0
    assert mails <= 1


@pytest.mark.parametrize("side", ["both", "parent", "child"])
async def test_the_cases_cover_every_commit(tmp_path: Path, side: Side) -> None:
    place = new_place("sqlite", tmp_path, migrated=True)
    _, _, store = await play(place, tmp_path, side, 10_000, "before")

    assert not store.dead
    print("COUNT", side, 10_000 - store.left)
    assert 10 <= 10_000 - store.left <= COMMITS[side], f"{10_000 - store.left} commits"
