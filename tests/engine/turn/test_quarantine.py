"""A turn is quarantined only with proof that it kills its worker, or fails after the same exception three times."""

import asyncio
import logging
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.streaming.bus import LiveText
from holdfast.engine.turn.recovery import WorkerDeath, judge
from holdfast.model.entry import Entry
from holdfast.model.errors import Invalid, Refused
from holdfast.model.event import (
    Event,
    ModelSaid,
    Quarantined,
    Recovered,
    Reopened,
    ToolEnded,
    ToolStarted,
    TurnEnded,
)
from holdfast.model.message import Text, ToolCall, text_of
from holdfast.model.process import Process
from holdfast.model.provider import ModelReply, ModelRequest, TextDelta
from holdfast.model.turn import turn_of
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.database import Transaction
from holdfast.store.repos import activity, input_queue, leases, sessions
from holdfast.store.repos.activity import TurnActivity
from holdfast.store.repos.input_queue import Input
from holdfast.store.repos.leases import Lease
from tests.engine.stage import Stage, gone, set_up
from tests.engine.turn.test_recovery import TURN, left_behind
from tests.engine.well_formed import assert_well_formed

KILLER = tuple(ScriptStep(call=(ScriptedCall("sleep"),)) for _ in range(9))
"""A model that calls a tool in which each worker dies."""


class Fleet:
    """Workers on one store, one after another; all but the last die during a turn."""

    def __init__(self, folder: Path, stages: list[Stage]) -> None:
        self._folder = folder
        self._stages = stages

    async def worker(self, *steps: ScriptStep, dies: bool = False, **options: object) -> Stage:
        database = self._stages[0].database if self._stages else None
        who = gone() if dies else None
        stage = await set_up(self._folder, *steps, database=database, who=who, **options)  # type: ignore[arg-type]
        self._stages.append(stage)
        return stage

    async def dies_in_its_tool(self, *session_ids: str) -> None:
        """A worker that resumes these sessions, runs their tools, and dies."""
        dying = await self.worker(*KILLER, dies=True)
        await dying.janitor().sweep()
        await at_work(dying, *session_ids)


async def at_work(stage: Stage, *session_ids: str) -> None:
    """Wait until tools of these sessions, and of no others, run in the worker."""
    async with asyncio.timeout(30):
        while await in_tools(stage) != {*session_ids}:
            await asyncio.sleep(0.01)


@pytest.fixture
def fleet(tmp_path: Path, stages: list[Stage]) -> Fleet:
    return Fleet(tmp_path, stages)


def last_end(events: list[Event]) -> TurnEnded:
    return [event for event in events if isinstance(event, TurnEnded)][-1]


async def swept(stage: Stage) -> None:
    await stage.janitor().sweep()
    await asyncio.wait_for(stage.engine.settled(), 30)


async def killed_three_times(fleet: Fleet) -> str:
    """A session whose turn was active, alone, in each of three workers that died."""
    first = await fleet.worker(*KILLER, dies=True)
    session = await first.session()
    await first.admit(session.id, "Kill it")
    await at_work(first, session.id)
    await fleet.dies_in_its_tool(session.id)
    await fleet.dies_in_its_tool(session.id)
    return session.id


async def test_promise_27_a_turn_whose_tool_kills_each_worker_is_quarantined_with_the_true_reason(fleet: Fleet) -> None:
    session_id = await killed_three_times(fleet)
    successor = await fleet.worker(model="echo")

    await swept(successor)

    session, entries = await successor.engine.read(session_id)
    events = [entry.event for entry in entries]
    assert_well_formed(events)
    end = last_end(events)
    assert (session.state, session.summary.open_turn, session.lease_worker) == ("quarantined", None, None)
    assert (end.outcome, end.code) == ("failed", "quarantined")
    assert end.reason.startswith(
        "the worker died 3 times in a row while it ran sleep, the last time with no other turn"
    )
    assert "process" in end.reason, "the evidence of the last death"
    recovered = [event for event in events if isinstance(event, Recovered)]
    assert [(event.suspect, event.isolated) for event in recovered] == [(True, False), (True, True)]


async def test_a_quarantined_turn_names_the_command_that_outlived_its_worker(fleet: Fleet) -> None:
    session_id = await killed_three_times(fleet)

    async def adopt(session: str, call_id: str) -> Process | None:
        fields = dict.fromkeys(Process.__struct_fields__) | {"id": "pr-1", "session_id": session, "pid": 4711}
        return Process(**fields)  # type: ignore[arg-type]

    successor = await fleet.worker(model="echo", adopt=adopt)
    await swept(successor)

    events = await successor.log(session_id)
    assert_well_formed(events)
    told = [event for event in events if isinstance(event, ToolEnded)][-1]
    assert told.outcome == "unknown"
    assert "still running as process pr-1 (pid 4711)" in text_of(told.parts)


async def test_promise_27_the_next_message_after_a_quarantined_turn_is_answered(fleet: Fleet) -> None:
    session_id = await killed_three_times(fleet)
    successor = await fleet.worker(model="echo")
    await swept(successor)

    events = await successor.play(session_id, "Are you well?")

    assert last_end(events).outcome == "done"
    assert (await successor.engine.read(session_id))[0].state == "waiting"


async def test_messages_queued_behind_a_quarantined_turn_are_answered(fleet: Fleet) -> None:
    session_id = await killed_three_times(fleet)
    successor = await fleet.worker(model="echo")

    events = await successor.play(session_id, "Are you well?")

    assert last_end(events).outcome == "done"
    outcomes = [event.outcome for event in await successor.log(session_id) if isinstance(event, TurnEnded)]
    assert outcomes == ["failed", "done"]


async def test_a_turn_that_died_with_others_is_replayed_until_it_dies_alone(fleet: Fleet) -> None:
    session_id = await killed_with_others(fleet)
    await fleet.dies_in_its_tool(session_id)
    successor = await fleet.worker(model="echo")

    await swept(successor)

    assert last_end(await successor.log(session_id)).code == "quarantined"


async def killed_with_others(fleet: Fleet) -> str:
    """A session whose turn was active in four deaths, each time with another turn."""
    first = await fleet.worker(*KILLER, dies=True)
    session = await first.session()
    await first.admit(session.id, "Kill it")
    await at_work(first, session.id)
    for _ in range(3):
        dying = await fleet.worker(*KILLER, dies=True)
        other = await dying.session(source="chat")
        await dying.janitor().sweep()
        await dying.admit(other.id, "Sleep")
        await at_work(dying, session.id, other.id)
    return session.id


async def test_a_death_with_other_active_turns_is_no_proof(fleet: Fleet) -> None:
    session_id = await killed_with_others(fleet)
    successor = await fleet.worker(*KILLER[:4], ScriptStep(say="I have stopped."))

    await swept(successor)

    events = await successor.log(session_id)
    assert not any(isinstance(event, Quarantined) for event in events)
    assert text_of([event for event in events if isinstance(event, ModelSaid)][-1].parts) == "I have stopped."


async def test_two_suspects_are_never_replayed_concurrently_and_others_are_not_blocked(fleet: Fleet) -> None:
    first = await fleet.worker(*KILLER, dies=True)
    suspects = [(await first.session()).id for _ in range(2)]
    for session_id in suspects:
        await first.admit(session_id, "Kill it")
    await at_work(first, *suspects)
    await fleet.dies_in_its_tool(*suspects)
    successor = await fleet.worker(*KILLER)
    await successor.janitor().sweep()
    await asyncio.wait_for(successor.hanging_tool.sleeping.wait(), 30)

    innocent = await successor.session()
    await successor.admit(innocent.id, "Sleep")

    async with asyncio.timeout(30):
        while len(found := await in_tools(successor)) != 2 or innocent.id not in found:
            await asyncio.sleep(0.01)
    [at_it], [waits] = found & {*suspects}, {*suspects} - found
    await successor.engine.interrupt(at_it)
    await at_work(successor, waits, innocent.id)
    for session_id in (waits, innocent.id):
        await successor.engine.interrupt(session_id)


async def in_tools(stage: Stage) -> set[str]:
    """The sessions with a tool running in the worker."""
    working = {one.session_id for one in await stage.database.read(activity.list_by_worker, stage.worker_id)}
    return {one for one in working if turn_of((await stage.engine.read(one))[1]).started}


async def test_suspects_are_replayed_with_growing_delays(fleet: Fleet) -> None:
    session_id = await killed_with_others(fleet)
    asked: list[int] = []
    successor = await fleet.worker(*KILLER, pause_after=lambda deaths: float(asked.append(deaths) or 0))

    await successor.janitor().sweep()
    await asyncio.wait_for(successor.hanging_tool.sleeping.wait(), 30)
    await successor.engine.interrupt(session_id)

    assert asked == [4]


def test_a_death_while_the_turn_waited_for_the_model_clears_earlier_ones() -> None:
    def after(*deaths: bool) -> list[Entry]:
        events = [Recovered(turn_id=TURN, attempt=1, action="continue", suspect=one, isolated=one) for one in deaths]
        return [Entry(seq, 1, event) for seq, event in enumerate(events, 1)]

    at_work, waiting = WorkerDeath("killed", at_work=True), WorkerDeath("killed")

    assert judge(after(True, True), TURN, at_work).is_guilty
    assert not judge(after(True, True, False), TURN, at_work).is_guilty
    assert judge(after(True, True, False), TURN, at_work).deaths == 1
    assert judge(after(True, True), TURN, waiting).deaths == 0


def test_reopening_by_a_user_restarts_the_count() -> None:
    tried = [Recovered(turn_id=TURN, attempt=1, action="continue", suspect=True, isolated=True)] * 2
    entries = [Entry(seq, 1, event) for seq, event in enumerate([*tried, Reopened(by_person=True)], 1)]

    case = judge(entries, TURN, WorkerDeath("killed", at_work=True))

    assert (case.attempt, case.deaths, case.is_guilty) == (1, 1, False)


async def test_a_session_quarantined_by_an_earlier_release_answers_the_next_message(fleet: Fleet) -> None:
    stage = await fleet.worker(model="echo")
    session_id = await left_behind(stage, Quarantined(reason="it died three times", turn_id=TURN))

    events = await stage.play(session_id, "And now?")

    assert last_end(events).outcome == "done"
    log = await stage.log(session_id)
    assert_well_formed(log)
    assert [(event.outcome, event.reason) for event in log if isinstance(event, TurnEnded)] == [
        ("failed", "it died three times"),
        ("done", ""),
    ]


async def test_messages_queued_in_a_session_quarantined_by_an_earlier_release_are_found_by_a_sweep(
    fleet: Fleet,
) -> None:
    stage = await fleet.worker(model="echo")
    session_id = await left_behind(stage, Quarantined(reason="it died three times", turn_id=TURN))

    def wait(tx: Transaction) -> None:
        from holdfast.model.event import UserSaid

        said = UserSaid(turn_id="turn-2", parts=(Text("And now?"),))
        input_queue.put(tx, session_id, Input("turn-2", "queue", said), at=1)

    await stage.database.write(wait)
    await swept(stage)

    assert last_end(await stage.log(session_id)).turn_id == "turn-2"


# exceptions


def failing(*errors: Exception) -> object:
    """A model that raises these one after another, and then answers."""
    left = list(errors)

    async def ask(request: ModelRequest) -> AsyncIterator[ModelReply]:
        if left:
            raise left.pop(0)
        yield ModelReply(parts=(Text("Fine."),), model="m", finish="stop")

    return ask


async def test_the_same_exception_three_times_ends_the_turn_with_that_exception_as_the_reason(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    pauses: list[int] = []
    stage = await fleet.worker(
        ask=failing(*[KeyError("gone")] * 3), pause_after=lambda failures: float(pauses.append(failures) or 0)
    )
    session = await stage.session()

    with caplog.at_level(logging.WARNING):
        end = last_end(await stage.play(session.id, "Hello"))

    assert (end.outcome, end.code, end.reason) == ("failed", "internal", "KeyError: 'gone'")
    assert pauses == [1, 2]
    assert len([record for record in caplog.records if record.exc_info]) == 1, "one traceback"
    log = await stage.log(session.id)
    assert not any(isinstance(event, Recovered | Quarantined) for event in log), "no worker died"
    assert last_end(await stage.play(session.id, "Again")).outcome == "done"


async def test_a_transient_exception_costs_only_a_delay(fleet: Fleet) -> None:
    stage = await fleet.worker(ask=failing(KeyError("gone"), OSError("odd"), KeyError("gone")))
    session = await stage.session()

    events = await stage.play(session.id, "Hello")

    assert [text_of(event.parts) for event in events if isinstance(event, ModelSaid)] == ["Fine."]
    assert last_end(events).outcome == "done"


async def test_an_exception_during_a_reply_is_reported_to_its_watchers(fleet: Fleet) -> None:
    asked: list[ModelRequest] = []

    async def ask(request: ModelRequest) -> AsyncIterator[TextDelta | ModelReply]:
        asked.append(request)
        yield TextDelta("Fi")
        if len(asked) == 1:
            raise KeyError("gone")
        yield TextDelta("ne.")
        yield ModelReply(parts=(Text("Fine."),), model="m", finish="stop")

    stage = await fleet.worker(ask=ask)
    session = await stage.session()

    shown = [(item.kind, item.text) async for item in stage.say(session.id, "Hello") if isinstance(item, LiveText)]

    again = shown.index(("restarted", "KeyError: 'gone'"))
    assert "".join(text for _, text in shown[:again]) == "Fi"
    assert "".join(text for _, text in shown[again + 1 :]) == "Fine."


async def test_a_call_repeated_in_an_isolated_replay_waits_for_its_slot(fleet: Fleet) -> None:
    asks = ModelSaid(turn_id=TURN, parts=(ToolCall("c2", "look", "{}"),))
    tried = [Recovered(turn_id=TURN, attempt=n, action="continue", suspect=True, isolated=n == 2) for n in (1, 2)]
    stage = await fleet.worker(ScriptStep(say="never"), ScriptStep(say="Quiet."))
    session_id = await left_behind(stage, asks, *tried, ToolStarted(turn_id=TURN, call_id="c2", name="look"))
    other = await stage.session()

    def as_it_was(tx: Transaction) -> Lease:
        for one in (session_id, other.id):
            activity.begin(tx, Lease(one, "worker-dead", 1), TURN, isolated=False)
        lease = leases.take(tx, other.id, stage.worker_id)
        assert activity.begin_isolated(tx, lease, "turn-other")
        return lease

    lease = await stage.database.write(as_it_was)
    stage.engine.take_up(session_id)
    async with asyncio.timeout(30):
        while await stage.database.read(activity.list_by_worker, stage.worker_id) != [
            TurnActivity(one, turn) for one, turn in sorted([(session_id, TURN), (other.id, "turn-other")])
        ]:
            await asyncio.sleep(0.01)
    assert stage.reader.runs == 0
    await stage.database.write(activity.end, lease)
    await asyncio.wait_for(stage.engine.settled(), 30)

    assert stage.reader.runs == 1
    assert last_end(await stage.log(session_id)).outcome == "done"


@pytest.mark.parametrize("error", [Invalid("there is no provider 'unknown'"), Refused("no")])
async def test_a_named_failure_ends_the_turn_at_once_with_its_code(fleet: Fleet, error: Exception) -> None:
    pauses: list[int] = []
    stage = await fleet.worker(ask=failing(error), pause_after=lambda failures: float(pauses.append(failures) or 0))
    session = await stage.session()

    end = last_end(await stage.play(session.id, "Hello"))

    assert (end.outcome, end.code, end.reason) == ("failed", error.code, str(error))
    assert pauses == []


async def test_calls_of_a_turn_that_ends_by_an_exception_have_their_results(fleet: Fleet) -> None:
    stage = await fleet.worker(ScriptStep(call=(ScriptedCall("mail", {"to": "bo"}),)), ScriptStep(say="never"))

    def broken(*arguments: object) -> str | None:
        raise RuntimeError("the list of risks is unreadable")

    stage.mailer.risk = broken  # type: ignore[method-assign]
    session = await stage.session()

    events = await stage.play(session.id, "Mail Bo")

    assert_well_formed(await stage.log(session.id))
    assert [event.outcome for event in events if isinstance(event, ToolEnded)] == ["failed"]
    assert last_end(events).reason == "RuntimeError: the list of risks is unreadable"


async def test_a_quarantined_turn_leaves_no_evidence_that_counts_twice(fleet: Fleet) -> None:
    session_id = await killed_three_times(fleet)
    successor = await fleet.worker(model="echo")
    await swept(successor)

    await successor.database.write(sessions.reopen, session_id, at=9)

    assert (await successor.engine.read(session_id))[0].state == "waiting"
    assert last_end(await successor.play(session_id, "Again")).outcome == "done"


# a turn that cannot be ended


class CannotEndTurns:
    """A store in which a bug prevents the end of turns, until it is repaired."""

    def __init__(self, inner: Any) -> None:
        self._inner = inner
        self.attempts = 0
        self.is_repaired = False

    async def write(self, work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        if "_end_turn" in getattr(work, "__qualname__", "") and not self.is_repaired:
            self.attempts += 1
            raise ZeroDivisionError("a bug in the end of a turn")
        return await self._inner.write(work, *args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


async def test_a_turn_that_cannot_be_ended_is_tried_a_few_times_by_the_janitor_with_one_traceback_for_each_error(
    fleet: Fleet, caplog: pytest.LogCaptureFixture
) -> None:
    stage = await fleet.worker(ask=failing(*[KeyError("gone")] * 99))
    session = await stage.session()
    store = CannotEndTurns(stage.database)
    object.__setattr__(stage.engine.services, "database", store)

    with caplog.at_level(logging.INFO):
        with pytest.raises(ZeroDivisionError):
            await stage.play(session.id, "Hello")
        for _ in range(5):
            await swept(stage)
        attempts, count = store.attempts, len(await stage.log(session.id))
        for _ in range(5):
            await swept(stage)

    assert store.attempts == attempts, "the janitor has given up"
    assert len(await stage.log(session.id)) == count, "and the log grows no more"
    traces = [record.exc_info[0] for record in caplog.records if record.exc_info]
    assert traces == [KeyError, ZeroDivisionError]
    [left] = [record.getMessage() for record in caplog.records if "stays open until" in record.getMessage()]
    assert session.id in left and "a bug in the end of a turn" in left


async def test_a_new_message_ends_a_turn_that_could_not_be_ended_once_the_cause_is_gone(fleet: Fleet) -> None:
    stage = await fleet.worker(ask=failing(*[KeyError("gone")] * 3))
    session = await stage.session()
    store = CannotEndTurns(stage.database)
    object.__setattr__(stage.engine.services, "database", store)
    with pytest.raises(ZeroDivisionError):
        await stage.play(session.id, "Hello")

    store.is_repaired = True
    events = await stage.play(session.id, "Again")

    assert last_end(events).outcome == "done"
    assert_well_formed(await stage.log(session.id))
