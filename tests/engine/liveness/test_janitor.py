"""The sessions of dead workers are recovered once, and live workers are not touched."""

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from pathlib import Path
from typing import Any, Literal

import pytest

from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.explain import explain
from holdfast.engine.liveness.janitor import Janitor, JanitorSettings, SweepAction, SweepReport, assess_worker
from holdfast.engine.liveness.lease_transactions import LEFT
from holdfast.engine.services import EngineServices
from holdfast.engine.stats import SessionStats, compute_stats
from holdfast.model.errors import Conflict, LeaseLost, Unavailable
from holdfast.model.event import Ended, Event, ModelSaid, Recovered, Reopened, SessionOpened, TurnEnded, UserSaid
from holdfast.model.ids import SESSION, WORKER, Ids
from holdfast.model.message import Text, text_of
from holdfast.model.session import Session
from holdfast.model.times import MINUTE, SECOND
from holdfast.process_lookup import current_identity
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import (
    input_queue,
    leases,
    log,
    ownership,
    recent_requests,
    session_list,
    sessions,
    workers,
)
from holdfast.store.repos.input_queue import Input
from holdfast.store.repos.recent_requests import WINDOW, RecentRequest
from holdfast.store.repos.workers import Identity
from holdfast.store.sqlite.driver import SqliteDatabase
from tests.engine.stage import PACE, Stage, elsewhere, gone, set_up
from tests.engine.well_formed import assert_well_formed
from tests.fakes.clock import FakeClock
from tests.fakes.crashing import Crash, CrashingDatabase
from tests.fakes.forks import fork_session

SLEEP = ScriptStep(say="Good night.", call=(ScriptedCall(name="sleep", arguments={}),))
SLEEPING = (SLEEP, ScriptStep(say="never"))
AWAKE = (
    ScriptStep(say="Here."),
    ScriptStep(say="Awake again."),
    ScriptStep(say="And well."),
    ScriptStep(say="As ever."),
)
"""The script of a worker that resumes a turn after one reply: it continues with the second step."""
CONTINUED = ("api", "gateway", "cron", "batch")
ATTENDED = ("chat", "run", "library")
OWNING = ("chat", "run", "library", "cron", "batch")
"""Sources whose interfaces keep their sessions open."""

Store = Callable[..., Awaitable[Stage]]


def workers_in(folder: Path, clock: FakeClock, stages: list[Stage]) -> Store:
    """Creates one more worker on the store of a directory: live or, for another process, with a script during which it dies."""

    async def make(*steps: ScriptStep, who: Identity | None = None) -> Stage:
        script = steps or (AWAKE if who is None else SLEEPING)
        database = stages[0].database if stages else None
        stages.append(stage := await set_up(folder, *script, database=database, clock=clock, who=who))
        return stage

    return make


@pytest.fixture
def worker_on(tmp_path: Path, stages: list[Stage], clock: FakeClock) -> Store:
    """Workers on the test's store, with a fake clock."""
    return workers_in(tmp_path, clock, stages)


async def asleep(stage: Stage, session_id: str) -> None:
    """Bring the session into a turn with a tool that never returns."""
    await stage.admit(session_id, "Sleep")
    await asyncio.wait_for(stage.hanging_tool.sleeping.wait(), 30)


async def swept(stage: Stage) -> SweepReport:
    """A sweep, and everything that it started."""
    found = await stage.janitor().sweep()
    await asyncio.wait_for(stage.engine.settled(), 30)
    return found


async def row(stage: Stage, session_id: str) -> Session:
    return await stage.database.read(sessions.get, session_id)


async def census(database: Database) -> SessionStats:
    def work(tx: Transaction) -> SessionStats:
        living = {
            worker.id for worker in workers.list_alive(tx) if assess_worker(worker, current_identity()).state != "dead"
        }
        return compute_stats(session_list.count_by_kind(tx), living)

    return await database.read(work)


async def leaked(database: Database) -> int:
    return (await census(database)).leaked


def said(events: list[Event], by: type[UserSaid] | type[ModelSaid]) -> list[str]:
    return [text_of(event.parts) for event in events if isinstance(event, by)]


def actions(found: SweepReport) -> list[tuple[str, str]]:
    return [(action.what, action.session_id) for action in found.actions]


# sessions of dead owners


@pytest.mark.parametrize("last", ["beat", "event"])
@pytest.mark.parametrize("source", OWNING)
async def test_promise_9_a_dead_owners_session_has_ended_at_its_last_sign_of_life(
    worker_on: Store, clock: FakeClock, source: str, last: str
) -> None:
    dead = await worker_on(ScriptStep(say="Hi."), who=gone())
    session = await dead.session(source=source, own=True)
    await dead.play(session.id, "Hello")
    clock.pass_seconds(20)
    sign = clock.now()
    if last == "beat":
        await dead.database.write(workers.record_heartbeat, dead.worker_id, at=clock.now())
    else:
        await dead.database.write(sessions.rename, session.id, "Greetings", at=clock.now())
    clock.pass_seconds(3600)
    living = await worker_on()

    found = await swept(living)

    after = await row(living, session.id)
    assert (after.state, after.summary.end_reason, after.summary.ended_at) == ("ended", "reaped", sign)
    assert after.owner_worker is None
    _, entries = await living.engine.read(session.id)
    assert entries[-1].at == clock.now(), "the event itself says when the sweep was"
    assert isinstance(entries[-1].event, Ended)
    assert f"process {current_identity().pid}" in entries[-1].event.detail, "the evidence"
    assert actions(found) == [("marked dead", ""), ("ended, because its owner died", session.id)]
    assert await leaked(living.database) == 0


async def test_a_clock_that_was_set_back_does_not_end_a_session_in_the_future(
    worker_on: Store, clock: FakeClock
) -> None:
    dead = await worker_on(who=gone())
    session = await dead.session(source="chat", own=True)
    clock.set_by(-86_400)
    living = await worker_on()

    await swept(living)

    assert (await row(living, session.id)).summary.ended_at == clock.now()


async def test_a_session_with_a_channel_stays_open_for_further_messages(worker_on: Store) -> None:
    dead = await worker_on(ScriptStep(say="Hi."), who=gone())
    session = await dead.session(source="library", channel="key:notes", own=True)
    await dead.play(session.id, "Hello")
    living = await worker_on()

    found = await swept(living)

    after = await row(living, session.id)
    assert (after.state, after.owner_worker) == ("waiting", None)
    assert actions(found)[1] == ("kept open for input", session.id)
    assert await leaked(living.database) == 0


@pytest.mark.parametrize("source", ATTENDED)
async def test_promise_10_a_session_reaped_during_a_turn_can_be_resumed_completely(
    worker_on: Store, source: str
) -> None:
    dead = await worker_on(who=gone())
    session = await dead.session(source=source, own=True)
    await asleep(dead, session.id)
    living = await worker_on()

    await swept(living)
    reaped = await row(living, session.id)
    before = await living.log(session.id)
    await living.engine.open(OpenRequest(ref=session.id, own=True))
    await living.engine.resume(session.id)
    await living.engine.settled()

    assert (reaped.state, reaped.summary.end_reason) == ("ended", "reaped")
    assert reaped.summary.open_turn is not None, "the turn was left as it was"
    events = await living.log(session.id)
    assert_well_formed(events)
    assert events[: len(before)] == before
    assert [type(event) for event in events[len(before) :]][:2] == [Reopened, Recovered]
    assert said(events, ModelSaid) == ["Good night.", "Awake again."]
    assert isinstance(events[-1], TurnEnded)
    assert events[-1].outcome == "done"
    after = await row(living, session.id)
    assert (after.state, after.owner_worker) == ("waiting", living.worker_id)


async def test_a_new_message_reopens_a_reaped_session_and_closes_the_interrupted_turn(worker_on: Store) -> None:
    dead = await worker_on(who=gone())
    session = await dead.session(source="chat", own=True)
    await asleep(dead, session.id)
    living = await worker_on()
    await swept(living)

    await living.engine.open(OpenRequest(ref=session.id, own=True))
    await living.play(session.id, "Are you there?")

    events = await living.log(session.id)
    assert_well_formed(events)
    assert [event.outcome for event in events if isinstance(event, TurnEnded)] == ["interrupted", "done"]
    assert said(events, UserSaid) == ["Sleep", "Are you there?"]
    assert (await row(living, session.id)).state == "waiting"


async def test_a_session_in_the_trash_is_left_there(worker_on: Store) -> None:
    dead = await worker_on(who=gone())
    session = await dead.session(source="api")
    await asleep(dead, session.id)
    living = await worker_on()
    await living.database.write(workers.mark_dead, dead.worker_id, "killed", at=1)
    await living.database.write(sessions.trash, session.id, at=2)
    before = await living.log(session.id)

    found = await swept(living)

    assert actions(found) == []
    assert await living.log(session.id) == before


# recovering turns


@pytest.mark.parametrize("source", CONTINUED)
async def test_promise_9_an_unattended_turn_is_resumed_and_finished(worker_on: Store, source: str) -> None:
    dead = await worker_on(who=gone())
    session = await dead.session(source=source, own=source in OWNING)
    await asleep(dead, session.id)
    living = await worker_on()

    await swept(living)

    events = await living.log(session.id)
    assert_well_formed(events)
    assert said(events, ModelSaid) == ["Good night.", "Awake again."]
    assert [(event.attempt, event.action) for event in events if isinstance(event, Recovered)] == [(1, "continue")]
    after = await row(living, session.id)
    expected = ("ended", "recovered") if source in ("cron", "batch") else ("waiting", None)
    assert (after.state, after.summary.end_reason) == expected
    assert after.worker_id is None
    assert await leaked(living.database) == 0


async def test_messages_queued_behind_an_orphaned_turn_are_answered_after_it(worker_on: Store) -> None:
    dead = await worker_on(who=gone())
    session = await dead.session(source="api")
    await asleep(dead, session.id)
    await dead.admit(session.id, "And then?")
    living = await worker_on()

    await swept(living)

    events = await living.log(session.id)
    assert_well_formed(events)
    assert said(events, UserSaid) == ["Sleep", "And then?"]
    assert said(events, ModelSaid) == ["Good night.", "Awake again.", "And well."]


async def test_queued_messages_without_a_worker_are_answered(worker_on: Store, ids: Ids) -> None:
    living = await worker_on()
    session = await living.session(source="gateway")
    await living.database.write(_leave_words, session.id, ids.make("turn-"))

    found = await swept(living)

    assert actions(found) == [("woken", session.id)]
    assert said(await living.log(session.id), ModelSaid) == ["Here."]


@pytest.mark.parametrize("source", OWNING)
async def test_queued_messages_reopen_an_ended_session_which_ends_again_after_them(
    worker_on: Store, source: str, ids: Ids
) -> None:
    leaving = await worker_on()
    session = await leaving.session(source=source, own=True)
    await leaving.database.write(_leave_words, session.id, ids.make("turn-"))
    await leaving.engine.owned.leave(session.id)
    assert (await row(leaving, session.id)).state == "ended"
    living = await worker_on()

    await swept(living)

    events = await living.log(session.id)
    assert_well_formed(events)
    assert [type(event) for event in events][1:4] == [Ended, Reopened, type(events[3])]
    assert said(events, ModelSaid) == ["Here."]
    after = await row(living, session.id)
    assert (after.state, after.summary.end_reason) == ("ended", "recovered")
    assert await leaked(living.database) == 0


def _leave_words(tx: Transaction, session_id: str, turn_id: str) -> None:
    """A queued message as a worker leaves it that has ended the previous turn and starts no other."""
    words = UserSaid(turn_id=turn_id, parts=(Text("Anybody?"),))
    input_queue.put(tx, session_id, Input(turn_id, "queue", words), at=1)


async def test_a_turn_that_waits_for_the_model_continues_however_often_its_worker_dies(worker_on: Store) -> None:
    first = await worker_on(who=gone())
    session = await first.session(source="api")
    await asleep(first, session.id)
    for _ in range(5):
        # Each of them resumes the turn, calls the model, gets no answer, and dies.
        unlucky = await worker_on(SLEEP, ScriptStep(hang=True), who=gone())
        await unlucky.janitor().sweep()
        await asyncio.wait_for(_until(unlucky.requests.__len__), 30)
    last = await worker_on()

    await swept(last)

    after, entries = await last.engine.read(session.id)
    why = explain(after, entries, None, None, [], idle_minutes=60)
    assert after.state == "waiting"
    assert [decision.what for decision in why.decisions if decision.kind in ("recovered", "quarantined")] == [
        "its turn was recovered, attempt 1: continue, suspected of causing the crash",
        *(f"its turn was recovered, attempt {attempt}: continue" for attempt in (2, 3, 4, 5, 6)),
    ]
    assert all(decision.evidence for decision in why.decisions)
    assert said(await last.log(session.id), ModelSaid)[-1] == "Awake again."
    assert actions(await swept(last)) == [], "no worker touches it any more"
    assert await leaked(last.database) == 0


async def _until(true: Callable[[], object]) -> None:
    while not true():
        await asyncio.sleep(0.01)


# idle sessions of the API


async def test_an_idle_api_session_ends_at_its_last_use_and_reopens_when_the_client_returns(
    worker_on: Store, clock: FakeClock
) -> None:
    living = await worker_on(ScriptStep(say="Hi."), ScriptStep(say="Welcome back."))
    session = await living.session(source="api", channel="api:someone")
    await living.play(session.id, "Hello")
    used = clock.now()
    clock.pass_seconds(60 * 60)
    on_the_hour = await swept(living)
    clock.pass_seconds(1)

    found = await swept(living)

    assert actions(on_the_hour) == []
    assert actions(found) == [("ended as idle", session.id)]
    ended = await row(living, session.id)
    assert (ended.state, ended.summary.end_reason, ended.summary.ended_at) == ("ended", "idle", used)
    again = await living.engine.open(OpenRequest(channel="api:someone", source="api"))
    assert again.session.id == session.id
    await living.play(session.id, "I am back")
    assert said(await living.log(session.id), ModelSaid) == ["Hi.", "Welcome back."]
    assert (await row(living, session.id)).state == "waiting"


async def test_a_sweep_deletes_requests_that_can_no_longer_be_retried(worker_on: Store, clock: FakeClock) -> None:
    living = await worker_on()
    session = await living.session(source="api")
    began, request = clock.now(), RecentRequest(session.id, "turn-1", living.engine.services.worker_id)
    await living.database.write(recent_requests.add, "me", "digest", request, at=began)

    await swept(living)
    assert await living.database.read(recent_requests.find_newest, "me", "digest", at=began) == request
    clock.pass_seconds(WINDOW / SECOND + 1)
    await swept(living)
    assert await living.database.read(recent_requests.find_newest, "me", "digest", at=began) is None


@pytest.mark.parametrize("source", ["gateway", "chat", "library"])
async def test_only_api_sessions_are_ended_for_being_idle(worker_on: Store, clock: FakeClock, source: str) -> None:
    living = await worker_on()
    await living.session(source=source, own=source in OWNING)
    clock.pass_seconds(400 * 86_400)

    assert actions(await swept(living)) == []


async def test_promise_10_an_api_session_that_a_live_worker_owns_or_holds_is_not_idle(
    worker_on: Store, clock: FakeClock
) -> None:
    living, other = await worker_on(), await worker_on()
    opened = await other.session(source="api", own=True)
    held = await other.session(source="api")
    await other.database.write(leases.take, held.id, other.worker_id)
    idle = await other.session(source="api")
    clock.pass_seconds(7200)

    found = await swept(living)

    assert actions(found) == [("ended as idle", idle.id)]
    assert (await row(living, opened.id)).state == (await row(living, held.id)).state == "waiting"


# live workers


async def test_promise_10_neither_silence_nor_a_set_clock_harms_a_process_of_this_machine(
    worker_on: Store, clock: FakeClock
) -> None:
    slow, living = await worker_on(*SLEEPING), await worker_on()
    session = await slow.session(source="chat", own=True)
    await asleep(slow, session.id)
    janitor = living.janitor()
    for move in (lambda: clock.set_by(86_400), lambda: clock.set_by(-2 * 86_400), lambda: clock.pass_seconds(3600)):
        await janitor.sweep()
        move()

    found = await janitor.sweep()

    assert {verdict.state for _, verdict in found.workers} == {"silent"}
    assert actions(found) == []
    assert (await row(living, session.id)).state == "running"


async def test_promise_10_a_worker_of_another_machine_is_assessed_by_its_heartbeats_on_our_clock(
    worker_on: Store, clock: FakeClock
) -> None:
    away, living = await worker_on(who=elsewhere()), await worker_on()
    session = await away.session(source="chat", own=True)
    clock.pass_seconds(86_400)  # it may have been silent for long: this janitor has just started to watch
    janitor = living.janitor()
    quiet = [await janitor.sweep()]
    for seconds in (60, 30):
        clock.set_by(86_400)
        clock.pass_seconds(seconds)
        quiet.append(await janitor.sweep())
    await away.database.write(workers.record_heartbeat, away.worker_id, at=clock.now())
    beaten_at = clock.now()
    quiet.append(await janitor.sweep())
    clock.pass_seconds(90)
    quiet.append(await janitor.sweep())
    clock.pass_seconds(1)

    found = await janitor.sweep()

    assert [actions(one) for one in quiet] == [[]] * 5
    assert actions(found) == [("marked dead", ""), ("ended, because its owner died", session.id)]
    assert "91 s" in found.actions[0].evidence
    assert (await row(living, session.id)).summary.ended_at == beaten_at


async def test_promise_10_a_janitor_that_was_suspended_with_its_machine_declares_nobody_dead(
    worker_on: Store, clock: FakeClock
) -> None:
    """A machine that is suspended has its wall clock moved on when it wakes, its monotonic clock not."""
    away, living = await worker_on(who=elsewhere()), await worker_on()
    await away.session(source="chat", own=True)
    janitor = living.janitor()
    await janitor.sweep()
    clock.set_by(3600)

    assert actions(await janitor.sweep()) == []


async def test_promise_10_a_janitor_never_declares_its_own_worker_dead(worker_on: Store, clock: FakeClock) -> None:
    odd = await worker_on(who=gone())
    session = await odd.session(source="chat", own=True)

    assert actions(await swept(odd)) == []
    assert (await row(odd, session.id)).owner_worker == odd.worker_id


async def test_promise_11_a_worker_that_was_declared_dead_can_write_nothing_reports_it_and_stops(
    worker_on: Store, clock: FakeClock
) -> None:
    back, living = await worker_on(who=elsewhere()), await worker_on()
    mine = await back.session(source="api")
    lease = await back.database.write(leases.take, mine.id, back.worker_id)
    chat = await back.session(source="chat", own=True)
    turn = asyncio.create_task(back.play(chat.id, "Sleep"))
    await asyncio.wait_for(back.hanging_tool.sleeping.wait(), 30)
    janitor = living.janitor()
    await janitor.sweep()
    clock.pass_seconds(91)
    await janitor.sweep()
    before = await living.log(chat.id)

    words = UserSaid(turn_id="late", parts=(Text("from the dead"),))
    with pytest.raises(LeaseLost):
        await back.database.write(log.append, lease, [words], at=clock.now())
    with pytest.raises(Conflict, match="declared dead") as told:
        await back.database.write(workers.record_heartbeat, back.worker_id, at=clock.now())
    back.engine.declare_dead(told.value)

    with pytest.raises(Conflict, match="declared dead"):
        await asyncio.wait_for(turn, 30)
    with pytest.raises(Conflict, match="declared dead"):
        await back.engine.death
    with pytest.raises(Conflict, match="declared dead"):
        await back.admit(chat.id, "Hello?")
    with pytest.raises(Conflict, match="declared dead"):
        await back.session(source="chat", own=True)
    assert back.hanging_tool.woken, "what it did was stopped"
    assert await living.log(chat.id) == before, "it has written nothing since"
    await back.engine.close()
    assert await leaked(living.database) == 0


# two janitors, and killed ones


async def wreckage(make: Store, clock: FakeClock, ids: Ids) -> tuple[str, dict[str, Session]]:
    """One of each thing that a worker can leave, and the worker."""
    dead = await make(who=gone())
    left = {
        "chat": await dead.session(source="chat", own=True),
        "key": await dead.session(source="library", channel="key:x", own=True),
        "chat in mid-turn": await dead.session(source="chat", own=True),
        "api in mid-turn": await dead.session(source="api"),
        "cron in mid-turn": await dead.session(source="cron", own=True),
        "idle": await dead.session(source="api"),
        "words": await dead.session(source="gateway"),
    }
    clock.pass_seconds(2 * 3600)
    for name in ("chat in mid-turn", "api in mid-turn", "cron in mid-turn"):
        await asleep(dead, left[name].id)
        dead.hanging_tool.sleeping.clear()
    await dead.database.write(_leave_words, left["words"].id, ids.make("turn-"))
    return dead.worker_id, left


async def assert_seen_to(stage: Stage, left: dict[str, Session]) -> None:
    """Each action was done, and none twice."""
    states = {name: await row(stage, session.id) for name, session in left.items()}
    assert {name: (session.state, session.summary.end_reason) for name, session in states.items()} == {
        "chat": ("ended", "reaped"),
        "key": ("waiting", None),
        "chat in mid-turn": ("ended", "reaped"),
        "api in mid-turn": ("waiting", None),
        "cron in mid-turn": ("ended", "recovered"),
        "idle": ("ended", "idle"),
        "words": ("waiting", None),
    }
    for name, session in left.items():
        events = await stage.log(session.id)
        if name != "chat in mid-turn":
            assert_well_formed(events)
        assert sum(isinstance(event, Ended) for event in events) == (states[name].state == "ended"), name
        assert sum(isinstance(event, TurnEnded) for event in events) == sum(
            name.startswith(turn) for turn in ("api in", "cron", "words")
        ), name
    assert await leaked(stage.database) == 0
    assert await stage.database.read(workers.list_uncleared) == []


async def test_two_concurrent_janitors_do_each_action_once(worker_on: Store, clock: FakeClock, ids: Ids) -> None:
    _, left = await wreckage(worker_on, clock, ids)
    both = [await worker_on() for _ in range(2)]

    await asyncio.gather(*(swept(one) for one in both))

    await assert_seen_to(both[0], left)
    for name in ("api in mid-turn", "cron in mid-turn"):
        events = await both[0].log(left[name].id)
        assert [event.attempt for event in events if isinstance(event, Recovered)] == [1]


async def test_a_sweep_does_not_wait_for_a_session_that_another_worker_has_resumed(worker_on: Store) -> None:
    busy, living = await worker_on(*SLEEPING), await worker_on()
    session = await busy.session(source="api")
    await asleep(busy, session.id)

    living.engine.take_up(session.id)
    await asyncio.wait_for(living.engine.settled(), 30)

    assert (await row(living, session.id)).lease_worker == busy.worker_id


@pytest.mark.timeout(300)
@pytest.mark.parametrize("when", ["before", "after"])
async def test_a_janitor_killed_at_any_write_of_its_sweep_leaves_the_rest_to_the_next(
    tmp_path: Path, clock: FakeClock, ids: Ids, when: Literal["before", "after"]
) -> None:
    for nth in range(1, 100):
        stages: list[Stage] = []
        make = workers_in(tmp_path / str(nth), clock, stages)
        _, left = await wreckage(make, clock, ids)
        first = await make(*AWAKE, who=gone())
        died = await _sweep_and_die(first, nth, when)
        second = await make()
        await swept(second)
        await assert_seen_to(second, left)
        for stage in stages:
            stage.scheduler.abandon(Conflict("killed"))
        await asyncio.gather(*(stage.engine.settled() for stage in stages))
        await stages[0].database.close()
        if not died:
            break
    assert nth > 8, "the sweep writes more than that"
    assert not died, "every write was tried"


async def _sweep_and_die(stage: Stage, nth: int, when: Literal["before", "after"]) -> bool:
    """Sweep in a process that is killed at its nth write; returns whether it was."""
    dying = CrashingDatabase(stage.database, nth, when)
    janitor = Janitor(replace(stage.engine.services, database=dying), current_identity(), PACE, stage.engine.take_up)
    try:
        await janitor.sweep()
    except Crash:
        pass
    stage.scheduler.abandon(Conflict("killed"))
    await stage.engine.settled()
    return dying.dead


class Flaky:
    """A store that is unavailable at every other call."""

    def __init__(self, inner: SqliteDatabase) -> None:
        self._inner = inner
        self.asked = 0

    async def read(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        self.asked += 1
        if self.asked % 2:
            raise Unavailable("the store is locked; try again")
        return await self._inner.read(work, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def test_a_store_that_was_unavailable_for_a_moment_does_not_stop_the_janitor(worker_on: Store) -> None:
    living = await worker_on()
    flaky = Flaky(living.database)
    services = replace(living.engine.services, database=flaky)  # type: ignore[arg-type]
    janitor = Janitor(services, current_identity(), PACE, living.engine.take_up)

    async with living.engine.supervisor.running({"janitor": janitor.as_task()}):
        await asyncio.wait_for(_until(lambda: flaky.asked > 2), 30)


class Forgetful(Janitor):
    """Fails at the first notification about abandoned work."""

    def __init__(self, services: EngineServices) -> None:
        super().__init__(services, current_identity(), PACE, lambda _: None)
        self.notifications = 0

    async def check_workers(self, *, notified: bool = False) -> list[SweepAction]:
        self.notifications += notified
        if self.notifications == 1:
            raise Unavailable("the store is locked; try again")
        return []


async def test_a_notification_while_the_store_was_unavailable_is_not_lost(worker_on: Store) -> None:
    living = await worker_on()
    janitor = Forgetful(living.engine.services)
    async with living.engine.supervisor.running({"janitor": janitor.as_task()}):
        await living.database.write(lambda tx: tx.notify(LEFT))
        await asyncio.wait_for(_until(lambda: janitor.notifications > 1), 30)


async def test_a_check_recovers_the_sessions_of_a_worker_that_another_process_declared_dead(worker_on: Store) -> None:
    dead = await worker_on(who=gone())
    session = await dead.session(source="chat", own=True)
    living = await worker_on()
    await living.database.write(workers.mark_dead, dead.worker_id, "killed", at=1)

    await living.janitor().check_workers()

    assert (await row(living, session.id)).summary.end_reason == "reaped"


# sessions without an owner


async def test_a_worker_that_is_killed_while_it_opens_a_session_leaves_an_owned_one_or_none(
    worker_on: Store,
) -> None:
    for nth in (1, 2):
        for when in ("before", "after"):
            dead = await worker_on(who=gone())
            object.__setattr__(dead.engine.services, "database", CrashingDatabase(dead.database, nth, when))
            try:
                await dead.session(source="chat", own=True)
            except Crash:
                pass
            object.__setattr__(dead.engine.services, "database", dead.database)
    living = await worker_on()

    await swept(living)

    page = await living.database.read(session_list.list_page, session_list.EVERYTHING, limit=50)
    assert page.sessions
    assert {session.state for session in page.sessions} == {"ended"}


@pytest.mark.parametrize("how", ["leaves", "dies"])
async def test_an_owner_that_leaves_while_another_worker_runs_a_turn_passes_the_session_on(
    worker_on: Store, how: str
) -> None:
    owner = await worker_on(who=gone())
    session = await owner.session(source="chat", own=True)
    visitor = await worker_on(*SLEEPING)
    await asleep(visitor, session.id)
    if how == "leaves":
        await owner.engine.owned.leave(session.id)
    living = await worker_on()
    await swept(living)
    assert (await row(living, session.id)).state == "running", "its turn was not touched"
    await visitor.engine.interrupt(session.id)
    await visitor.engine.settled()
    await visitor.engine.close()

    await swept(living)

    after = await row(living, session.id)
    assert (after.state, after.summary.end_reason) == ("ended", "reaped")


async def test_a_second_chat_in_a_session_becomes_its_owner_when_the_first_has_left(worker_on: Store) -> None:
    first, second = await worker_on(), await worker_on(ScriptStep(say="Hi."))
    session = await first.session(source="chat", own=True)
    await second.session(ref=session.id, own=True)
    assert (await row(first, session.id)).owner_worker == first.worker_id
    await first.engine.owned.leave(session.id)

    await second.play(session.id, "Hello")

    assert (await row(second, session.id)).owner_worker == second.worker_id
    await second.engine.close()
    assert (await row(first, session.id)).summary.end_reason == "cli_close"


async def test_promise_10_a_session_resumed_after_its_owner_was_killed_is_not_reaped_with_it(
    worker_on: Store,
) -> None:
    dead = await worker_on(who=gone())
    session = await dead.session(source="chat", own=True)
    successor, living = await worker_on(), await worker_on()

    await successor.session(ref=session.id, own=True)
    found = await swept(living)

    assert actions(found) == []
    after = await row(living, session.id)
    assert (after.state, after.owner_worker) == ("waiting", successor.worker_id)


async def test_a_session_without_an_owner_is_waiting_and_not_leaked(worker_on: Store) -> None:
    living = await worker_on(ScriptStep(say="Hi."), ScriptStep(say="Ho."))
    session = await living.session(source="chat", own=True)
    await living.play(session.id, "Hello")
    await living.engine.owned.leave(session.id)

    await living.database.write(sessions.reopen, session.id, at=1)
    await living.database.write(fork_session, session.id, "hf-00000000000000000001", at=1)

    assert await leaked(living.database) == 0


async def test_a_worker_that_shuts_down_in_order_leaves_nothing_to_sweep(worker_on: Store) -> None:
    leaving, living = await worker_on(), await worker_on()
    await leaving.session(source="chat", own=True)
    await leaving.session(source="library", channel="key:x", own=True)
    await leaving.engine.close()

    assert await living.database.read(workers.list_uncleared) == []
    assert actions(await swept(living)) == []


# many


@pytest.mark.slow
@pytest.mark.timeout(300)
async def test_ten_thousand_open_sessions_of_one_worker_end_in_one_sweep(
    worker_on: Store, clock: FakeClock, ids: Ids
) -> None:
    living = await worker_on()
    dead = ids.make(WORKER)
    await living.database.write(workers.register, dead, "batch", gone(), version="0", at=clock.now())
    for _ in range(20):
        await living.database.write(_open_many, dead, [ids.make(SESSION) for _ in range(500)], at=clock.now())
    before = await census(living.database)

    found = await swept(living)

    after = await census(living.database)
    assert (before.total, before.leaked) == (10_000, 10_000)
    assert (after.total, after.leaked, after.by_reason) == (10_000, 0, {"reaped": 10_000})
    assert len(found.actions) == 10_001


def _open_many(tx: Transaction, owner: str, session_ids: list[str], *, at: int) -> None:
    for session_id in session_ids:
        sessions.create(tx, session_id, SessionOpened(source="batch"), at=at)
        ownership.attach(tx, session_id, owner)


@pytest.mark.timeout(300)
async def test_one_sweep_handles_everything_however_much(worker_on: Store, clock: FakeClock, ids: Ids) -> None:
    living = await worker_on()
    last = ""
    for _ in range(120):
        last = ids.make(WORKER)
        await living.database.write(_die_with_a_session, last, ids.make(SESSION), at=clock.now())
    for _ in range(2):
        await living.database.write(_leave_turns, last, [ids.make(SESSION) for _ in range(300)], at=clock.now())
        await living.database.write(_be_idle, [ids.make(SESSION) for _ in range(300)], at=clock.now() - 120 * MINUTE)

    await swept(living)

    assert (await census(living.database)).by_reason == {"reaped": 720, "idle": 600}
    assert await living.database.read(workers.list_uncleared) == []


def _die_with_a_session(tx: Transaction, worker_id: str, session_id: str, *, at: int) -> None:
    workers.register(tx, worker_id, "chat", gone(), version="0", at=at)
    sessions.create(tx, session_id, SessionOpened(source="chat"), at=at)
    ownership.attach(tx, session_id, worker_id)
    workers.mark_dead(tx, worker_id, "killed", at=at)


def _leave_turns(tx: Transaction, worker_id: str, session_ids: list[str], *, at: int) -> None:
    """Sessions with an open turn, without an owner and a lease."""
    from holdfast.model.event import TurnStarted

    for session_id in session_ids:
        sessions.create(tx, session_id, SessionOpened(source="chat"), at=at)
        log.append_unheld(tx, session_id, [TurnStarted(turn_id="turn-1", worker_id=worker_id)], at=at)


def _be_idle(tx: Transaction, session_ids: list[str], *, at: int) -> None:
    for session_id in session_ids:
        sessions.create(tx, session_id, SessionOpened(source="api"), at=at)


async def test_the_intervals_come_from_the_settings(worker_on: Store, clock: FakeClock) -> None:
    living = await worker_on()
    session = await living.session(source="api")
    clock.pass_seconds(6 * 60)
    patient = JanitorSettings(stale_seconds=90, sweep_seconds=60, idle_minutes=7)
    hasty = JanitorSettings(stale_seconds=90, sweep_seconds=60, idle_minutes=5)

    assert actions(await living.janitor(patient).sweep()) == []
    assert actions(await living.janitor(hasty).sweep()) == [("ended as idle", session.id)]
    assert (await row(living, session.id)).summary.ended_at == clock.now() - 360 * SECOND
