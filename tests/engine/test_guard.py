"""A worker that the store has not heard of for too long stops by itself; and a store that was away harms nobody."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine import guard
from holdfast.engine.guard import Guard
from holdfast.engine.heartbeat import Heartbeat
from holdfast.engine.janitor import Janitor
from holdfast.identity import identity
from holdfast.model.errors import Conflict, Unavailable
from holdfast.model.event import ModelSaid, Recovered, ToolEnded, TurnEnded
from holdfast.model.message import text_of
from holdfast.providers.scripted import Call, Step
from holdfast.store import sessions
from holdfast.store.sqlite import SqliteDatabase, open_sqlite
from tests.engine.stage import PACE, Stage, elsewhere, set_up
from tests.engine.well_formed import assert_well_formed
from tests.fakes.clock import FakeClock

SLEEPS = (Step(say="Good night.", call=(Call(name="sleep", arguments={}),)), Step(say="Awake again."))
LIMIT = 30.0


class Away:
    """A store that can be away for a while."""

    def __init__(self, inner: SqliteDatabase) -> None:
        self._inner = inner
        self.is_away = False

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._refuse()
        return await self._inner.write(work, *args, **kwargs)

    async def read(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self._refuse()
        return await self._inner.read(work, *args, **kwargs)

    def _refuse(self) -> None:
        if self.is_away:
            raise Unavailable("the store is away; try again later")

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def never(error: Conflict) -> None:
    raise AssertionError(f"nobody was declared dead: {error}")


def guarded(stage: Stage, seconds: float | None = 60) -> tuple[Guard, Heartbeat]:
    """A guard over a worker that only beats when it is told to."""
    heartbeat = Heartbeat(stage.engine.ground, 3600, never)
    return Guard(stage.engine, heartbeat, seconds), heartbeat


async def sleeping(stage: Stage) -> str:
    """A session with a turn that never ends by itself."""
    session = await stage.session()
    await stage.engine.admit(session.id, "Sleep")
    await asyncio.wait_for(stage.sleeper.sleeping.wait(), LIMIT)
    return session.id


@pytest.mark.parametrize(("stale", "silence"), [(90, 75), (30, 20), (6, 4)])
def test_a_worker_stops_before_others_may_bury_it(stale: float, silence: float) -> None:
    assert guard.limit(stale) == silence


async def test_promise_11_a_worker_of_which_the_store_has_not_heard_stops_acting_and_takes_no_work(
    tmp_path: Path, clock: FakeClock, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, *SLEEPS, clock=clock))
    guarding, heartbeat = guarded(stage)
    session_id = await sleeping(stage)

    clock.pass_seconds(60)
    guarding.look()
    assert not stage.sleeper.woken
    clock.pass_seconds(1)
    guarding.look()
    await stage.engine.settled()

    assert stage.sleeper.woken, "the tool was stopped"
    with pytest.raises(Unavailable, match="has not reached the store for 61 s"):
        await stage.engine.admit(session_id, "More")
    assert (await stage.database.read(sessions.get, session_id)).lease_worker is None

    await asyncio.to_thread(heartbeat.beat)
    guarding.look()
    stage.engine.take_up(session_id)
    await stage.engine.settled()
    events = await stage.log(session_id)
    assert_well_formed(events)
    assert [event.outcome for event in events if isinstance(event, ToolEnded)] == ["unknown"]
    assert text_of([event for event in events if isinstance(event, ModelSaid)][-1].parts) == "Awake again."


async def test_promise_10_a_worker_whose_store_is_its_own_machines_is_never_stopped(
    tmp_path: Path, clock: FakeClock, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, *SLEEPS, clock=clock))
    guarding, _ = guarded(stage, None)
    await sleeping(stage)

    clock.pass_seconds(86_400)
    guarding.look()

    assert not stage.sleeper.woken


async def test_promise_9_a_session_that_could_not_be_given_back_is_when_the_store_is_back(
    tmp_path: Path, stages: list[Stage]
) -> None:
    away = Away(await open_sqlite(tmp_path / "holdfast.db"))
    stages.append(stage := await set_up(tmp_path, *SLEEPS, database=away))  # type: ignore[arg-type]
    session_id = await sleeping(stage)

    away.is_away = True
    await stage.engine.settled()  # the turn looks for input, and there is no store to look into
    away.is_away = False
    assert (await stage.database.read(sessions.get, session_id)).lease_worker == stage.worker_id, (
        "held by nobody at all"
    )
    await stage.engine.give_back_owed()
    await stage.engine.settled()

    events = await stage.log(session_id)
    assert_well_formed(events)
    assert isinstance(events[-1], TurnEnded) and events[-1].outcome == "done"
    assert (await stage.database.read(sessions.get, session_id)).lease_worker is None
    assert sum(isinstance(event, Recovered) for event in events) == 1


async def test_promise_10_time_in_which_the_store_did_not_answer_is_no_silence(
    tmp_path: Path, clock: FakeClock, stages: list[Stage]
) -> None:
    away = Away(await open_sqlite(tmp_path / "holdfast.db"))
    stages.append(stage := await set_up(tmp_path, database=away, clock=clock))  # type: ignore[arg-type]
    stages.append(other := await set_up(tmp_path, database=away, clock=clock, who=elsewhere()))  # type: ignore[arg-type]
    janitor = Janitor(replace(stage.engine.ground), identity(), PACE, stage.engine.take_up)
    await janitor.glance()
    clock.pass_seconds(PACE.stale_seconds - 10)
    await janitor.glance()

    away.is_away = True
    for _ in range(3):
        with pytest.raises(Unavailable):
            await janitor.glance()
        clock.pass_seconds(PACE.stale_seconds)
    away.is_away = False
    at_once = await janitor.glance()
    clock.pass_seconds(9)
    later = await janitor.glance()
    clock.pass_seconds(2)
    found = await janitor.glance()

    assert (at_once, later) == ([], [])
    assert [deed.worker_id for deed in found if deed.what == "buried"] == [other.worker_id]
