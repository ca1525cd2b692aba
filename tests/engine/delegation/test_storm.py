"""Many children, awaited and in the background, while workers die at random commits and the user goes on writing."""

import asyncio
import json
import random
from pathlib import Path
from typing import Any, Literal

import pytest

from holdfast.model.event import ChildStarted, TurnEnded, UserSaid
from holdfast.store.database import Database
from holdfast.store.repos import workers
from tests.contract.store_urls import new_place, open_place
from tests.engine.delegation.family import Family, completions_in, family
from tests.engine.delegation.test_crash import abandon
from tests.engine.well_formed import assert_well_formed
from tests.fakes.crashing import Crash, CrashingDatabase
from tests.sampling import SOAK

CHILDREN, COMPLETIONS = (100, 200) if SOAK else (12, 16)
DEATHS = 30 if SOAK else 4
KINDS = ["sqlite", pytest.param("postgres", marks=pytest.mark.process)]
pytestmark = [pytest.mark.slow, pytest.mark.timeout(900 if SOAK else 120)]


async def begin(place: str, folder: Path, calls: list[dict[str, Any]]) -> str:
    """A parent whose model is about to delegate; its worker leaves."""
    database = await open_place(place)
    async with family(folder, database=database, watches=False) as one:
        parent = await one.parent()
        await one.stage.admit(parent, json.dumps(calls))
    await database.close()
    return parent


async def live(parent: str, folder: Path, database: Database, chance: random.Random, *, writes: bool) -> None:
    """A worker that continues everything until all is done, or until it dies: Crash."""
    async with family(folder, database=database) as one:
        await take_over(one)
        while isinstance(database, CrashingDatabase) or await one.is_busy():
            if isinstance(database, CrashingDatabase) and (database.dead or not await one.is_busy()):
                break
            if writes and chance.random() < 0.05:
                await one.stage.admit(parent, f"do {chance.random()}")
            await asyncio.sleep(chance.random() * 0.02)
        await one.quiet()


async def take_over(one: Family) -> None:
    database, own = one.stage.database, one.stage.worker_id
    for worker in await database.read(workers.list_alive):
        if worker.id != own:
            await database.write(workers.mark_dead, worker.id, "killed", at=1)
    await one.stage.janitor().sweep()


async def storm(place: str, folder: Path, parent: str, *, writes: bool) -> None:
    """Let one worker after the other die, and a last one finish."""
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    chance = random.Random(f"{place} {writes}")
    for _ in range(DEATHS):
        when: Literal["before", "after"] = chance.choice(["before", "after"])
        dying = CrashingDatabase(await open_place(place), chance.randint(8, 80), when)
        try:
            await live(parent, folder, dying, chance, writes=writes)
        except Crash:
            pass
        await abandon()
        await dying.close()
    last = await open_place(place)
    await live(parent, folder, last, chance, writes=False)
    await last.close()


async def check(place: str, folder: Path, parent: str, count: int) -> None:
    database = await open_place(place)
    async with family(folder, database=database, watches=False) as one:
        log, records = await one.stage.log(parent), await one.children(parent)
        children = [await one.stage.log(record.child_id) for record in records]
    await database.close()
    assert_well_formed(log)
    started = sorted(event.child_id for event in log if isinstance(event, ChildStarted))
    assert (len(started), sorted(completions_in(log))) == (count, started), "each completion arrived exactly once"
    assert sorted(record.child_id for record in records) == started
    for child in children:
        assert [event.outcome for event in child if isinstance(event, TurnEnded)] == ["done"]
        assert len([event for event in child if isinstance(event, UserSaid)]) == 1


@pytest.mark.parametrize("kind", KINDS)
async def test_promise_30_children_survive_the_deaths_of_many_workers(tmp_path: Path, kind: str) -> None:
    place = new_place(kind, tmp_path, migrated=True)
    parent = await begin(place, tmp_path, [{"task": f"do {n}"} for n in range(CHILDREN)])

    await storm(place, tmp_path, parent, writes=False)

    await check(place, tmp_path, parent, CHILDREN)


@pytest.mark.parametrize("kind", KINDS)
async def test_promise_30_background_completions_arrive_once_at_any_moment(tmp_path: Path, kind: str) -> None:
    place = new_place(kind, tmp_path, migrated=True)
    parent = await begin(place, tmp_path, [{"task": f"do {n}", "background": True} for n in range(COMPLETIONS)])

    await storm(place, tmp_path, parent, writes=True)

    await check(place, tmp_path, parent, COMPLETIONS)
