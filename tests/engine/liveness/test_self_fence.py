"""A worker without a saved heartbeat for too long stops itself; an unavailable store has no other effect."""

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.liveness import self_fence
from holdfast.engine.liveness.heartbeat import Heartbeat
from holdfast.engine.liveness.janitor import Janitor
from holdfast.engine.liveness.self_fence import SelfFence
from holdfast.model.errors import Conflict, Unavailable
from holdfast.model.event import ModelSaid, Recovered, ToolEnded, TurnEnded
from holdfast.model.message import text_of
from holdfast.process_lookup import current_identity
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.repos import sessions
from holdfast.store.sqlite.driver import SqliteDatabase, open_sqlite
from tests.engine.stage import PACE, Stage, elsewhere, set_up
from tests.engine.well_formed import assert_well_formed
from tests.fakes.clock import FakeClock

SLEEPS = (
    ScriptStep(say="Good night.", call=(ScriptedCall(name="sleep", arguments={}),)),
    ScriptStep(say="Awake again."),
)
LIMIT = 30.0


class Away:
    """A store that can be unavailable for a while."""

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


def guarded(stage: Stage, seconds: float | None = 60) -> tuple[SelfFence, Heartbeat]:
    """A fence of a worker that writes heartbeats only on request."""
    heartbeat = Heartbeat(stage.engine.services, 3600, never, stage.engine.supervisor)
    return SelfFence(stage.scheduler, heartbeat, seconds, stage.engine.services.clock), heartbeat


async def sleeping(stage: Stage) -> str:
    """A session with a turn that never ends by itself."""
    session = await stage.session()
    await stage.admit(session.id, "Sleep")
    await asyncio.wait_for(stage.hanging_tool.sleeping.wait(), LIMIT)
    return session.id


@pytest.mark.parametrize(("stale", "silence"), [(90, 75), (30, 20), (6, 4)])
def test_a_worker_stops_before_others_may_declare_it_dead(stale: float, silence: float) -> None:
    assert self_fence.limit(stale) == silence


async def test_promise_11_a_worker_without_a_saved_heartbeat_stops_acting_and_accepts_no_work(
    tmp_path: Path, clock: FakeClock, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, *SLEEPS, clock=clock))
    guarding, heartbeat = guarded(stage)
    session_id = await sleeping(stage)

    clock.pass_seconds(60)
    guarding.check()
    assert not stage.hanging_tool.woken
    clock.pass_seconds(1)
    guarding.check()
    await stage.engine.settled()

    assert stage.hanging_tool.woken, "the tool was stopped"
    with pytest.raises(Unavailable, match="has not reached the store for 61 s"):
        await stage.admit(session_id, "More")
    assert (await stage.database.read(sessions.get, session_id)).lease_worker is None

    await asyncio.to_thread(heartbeat.beat)
    guarding.check()
    stage.engine.take_up(session_id)
    await stage.engine.settled()
    events = await stage.log(session_id)
    assert_well_formed(events)
    assert [event.outcome for event in events if isinstance(event, ToolEnded)] == ["unknown"]
    assert text_of([event for event in events if isinstance(event, ModelSaid)][-1].parts) == "Awake again."


async def test_promise_10_a_worker_with_a_local_store_is_never_stopped(
    tmp_path: Path, clock: FakeClock, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, *SLEEPS, clock=clock))
    guarding, _ = guarded(stage, None)
    await sleeping(stage)

    clock.pass_seconds(86_400)
    guarding.check()

    assert not stage.hanging_tool.woken


async def test_promise_9_a_session_that_could_not_be_released_is_released_when_the_store_is_back(
    tmp_path: Path, stages: list[Stage]
) -> None:
    away = Away(await open_sqlite(tmp_path / "holdfast.db"))
    stages.append(stage := await set_up(tmp_path, *SLEEPS, database=away))  # type: ignore[arg-type]
    session_id = await sleeping(stage)

    away.is_away = True
    await stage.engine.settled()  # the turn reads its input queue, and the store is unavailable
    away.is_away = False
    assert (await stage.database.read(sessions.get, session_id)).lease_worker == stage.worker_id, "held by no worker"
    await stage.scheduler.release_owed_leases()
    await stage.engine.settled()

    events = await stage.log(session_id)
    assert_well_formed(events)
    assert isinstance(events[-1], TurnEnded) and events[-1].outcome == "done"
    assert (await stage.database.read(sessions.get, session_id)).lease_worker is None
    assert sum(isinstance(event, Recovered) for event in events) == 1


async def test_promise_10_time_without_an_answer_of_the_store_does_not_count_as_silence(
    tmp_path: Path, clock: FakeClock, stages: list[Stage]
) -> None:
    away = Away(await open_sqlite(tmp_path / "holdfast.db"))
    stages.append(stage := await set_up(tmp_path, database=away, clock=clock))  # type: ignore[arg-type]
    stages.append(other := await set_up(tmp_path, database=away, clock=clock, who=elsewhere()))  # type: ignore[arg-type]
    janitor = Janitor(replace(stage.engine.services), current_identity(), PACE, stage.engine.take_up)
    await janitor.check_workers()
    clock.pass_seconds(PACE.stale_seconds - 10)
    await janitor.check_workers()

    away.is_away = True
    for _ in range(3):
        with pytest.raises(Unavailable):
            await janitor.check_workers()
        clock.pass_seconds(PACE.stale_seconds)
    away.is_away = False
    at_once = await janitor.check_workers()
    clock.pass_seconds(9)
    later = await janitor.check_workers()
    clock.pass_seconds(2)
    found = await janitor.check_workers()

    assert (at_once, later) == ([], [])
    assert [action.worker_id for action in found if action.what == "marked dead"] == [other.worker_id]
