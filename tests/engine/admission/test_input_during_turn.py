"""Input that arrives while a turn runs, and requests to stop it."""

import asyncio
import time
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.engine.liveness import take_lease
from holdfast.engine.streaming.bus import LiveText
from holdfast.model.entry import Entry
from holdfast.model.errors import Busy, KeyReused
from holdfast.model.event import ModelSaid, ToolEnded, ToolStarted, TurnEnded, UserSaid
from holdfast.model.message import Text, text_of
from holdfast.model.provider import Delta, ModelReply, ModelRequest, StreamRestarted
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.database import Transaction
from holdfast.store.repos import input_queue, log, sessions
from holdfast.store.repos.input_queue import Input
from holdfast.store.repos.sessions import TakenSession
from tests.engine.stage import Stage, set_up
from tests.engine.well_formed import assert_well_formed

SLEEP = ScriptStep(say="Good night.", call=(ScriptedCall(name="sleep", arguments={}),))
LOOK = ScriptStep(call=(ScriptedCall(name="look", arguments={}),))


async def asleep(stage: Stage, session_id: str) -> "asyncio.Task[list[object]]":
    """A turn in a tool that never returns."""
    turn = asyncio.create_task(stage.play(session_id, "Sleep"))
    await asyncio.wait_for(stage.hanging_tool.sleeping.wait(), 10)
    return turn


async def test_queued_messages_keep_their_order_and_each_gets_its_turn(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, SLEEP, ScriptStep(say="One."), ScriptStep(say="Two.")))
    session = await stage.session()
    first = await asleep(stage, session.id)

    one = asyncio.create_task(stage.play(session.id, "one"))
    await asyncio.sleep(0.05)
    two = asyncio.create_task(stage.play(session.id, "two"))
    await asyncio.sleep(0.05)
    await stage.engine.interrupt(session.id)

    assert (await first)[-1].outcome == "interrupted"
    assert [text_of(event.parts) for event in await one if isinstance(event, ModelSaid)] == ["One."]
    assert [text_of(event.parts) for event in await two if isinstance(event, ModelSaid)] == ["Two."]
    assert_well_formed(await stage.log(session.id))


async def test_queued_messages_survive_the_worker(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, SLEEP, ScriptStep(say="One.")))
    session = await stage.session(source="run")
    first = await asleep(stage, session.id)
    await stage.admit(session.id, "one")
    await stage.engine.close("gone")
    first.cancel()
    stages.append(
        other := await set_up(tmp_path, SLEEP, ScriptStep(say="One."), ScriptStep(say="Two."), database=stage.database)
    )

    await other.play(session.id, "two")

    log_ = await other.log(session.id)
    assert_well_formed(log_)
    assert [text_of(event.parts) for event in log_ if isinstance(event, UserSaid)] == ["Sleep", "one", "two"]


async def test_a_worker_that_shuts_down_stops_a_turn_with_queued_messages_behind_it(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, SLEEP, ScriptStep(say="One.")))
    session = await stage.session()

    # The second message arrives before the first has been taken.
    await asyncio.gather(stage.admit(session.id, "Sleep"), stage.admit(session.id, "one"))
    await asyncio.wait_for(stage.hanging_tool.sleeping.wait(), 10)
    await stage.engine.close()

    assert stage.hanging_tool.woken
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("serve")]


async def test_a_message_whose_turn_a_departing_worker_started_is_answered_by_the_waiting_one(
    tmp_path: Path, stages: list[Stage]
) -> None:
    steps = SLEEP, SLEEP, ScriptStep(say="Here I am.")
    stages.append(stage := await set_up(tmp_path, *steps))
    stages.append(other := await set_up(tmp_path, *steps, database=stage.database))
    session = await stage.session(source="run")
    first = await asleep(stage, session.id)
    second = asyncio.create_task(other.play(session.id, "Are you there?"))
    while not await stage.queued(session.id):
        await asyncio.sleep(0)
    stage.hanging_tool.sleeping.clear()
    await stage.engine.interrupt(session.id)
    await first
    await asyncio.wait_for(stage.hanging_tool.sleeping.wait(), 10)
    await stage.engine.drain(0)
    events = await second

    assert isinstance(events[-1], TurnEnded)
    assert events[-1].outcome == "done", "only this worker's caller wants this turn"
    assert text_of([event for event in events if isinstance(event, ModelSaid)][-1].parts) == "Here I am."
    assert_well_formed(await other.log(session.id))


async def test_a_worker_that_waits_for_a_session_tries_once_per_retry_period(
    tmp_path: Path, stages: list[Stage], monkeypatch: pytest.MonkeyPatch
) -> None:
    period, tries = 0.1, 0
    take = sessions.take

    def counted(tx: Transaction, session_id: str, worker_id: str) -> TakenSession:
        nonlocal tries
        tries += worker_id == other.worker_id
        return take(tx, session_id, worker_id)

    monkeypatch.setattr(take_lease, "RETRY_SECONDS", period)
    monkeypatch.setattr(sessions, "take", counted)
    stages.append(stage := await set_up(tmp_path, SLEEP, ScriptStep(say="One.")))
    stages.append(other := await set_up(tmp_path, SLEEP, ScriptStep(say="One."), database=stage.database))
    session = await stage.session()
    first = await asleep(stage, session.id)

    began = time.monotonic()
    second = asyncio.create_task(other.play(session.id, "one"))
    while tries < 20:
        await asyncio.sleep(0.01)
    periods = (time.monotonic() - began) / period
    made = tries
    await stage.engine.interrupt(session.id)
    await first
    await second

    # Some more at the start: for the message itself, and because a listener is always woken first.
    assert made <= periods + 6


async def test_promise_9_a_one_shot_worker_starts_no_turn_of_a_dead_worker(tmp_path: Path, stages: list[Stage]) -> None:
    steps = SLEEP, ScriptStep(say="One."), ScriptStep(say="Two.")
    stages.append(stage := await set_up(tmp_path, *steps, leaves_queue=True))
    stages.append(other := await set_up(tmp_path, *steps, database=stage.database))
    session = await stage.session(source="run")
    first = await asleep(stage, session.id)
    await other.admit(session.id, "one")
    await other.engine.close()
    await stage.engine.interrupt(session.id)
    await first
    await stage.engine.settled()

    left = await stage.database.read(sessions.get, session.id)
    assert (left.summary.open_turn, left.lease_worker) == (None, None)
    assert [text_of(item.said.parts) for item in await stage.queued(session.id) if item.said] == ["one"]

    stages.append(next_ := await set_up(tmp_path, *steps, database=stage.database))
    await next_.play(session.id, "two")
    log_ = await next_.log(session.id)
    assert_well_formed(log_)
    assert [text_of(event.parts) for event in log_ if isinstance(event, UserSaid)] == ["Sleep", "one", "two"]


async def test_an_interrupt_before_a_shutdown_starts_no_further_turn(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, SLEEP, ScriptStep(say="One.")))
    session = await stage.session()
    first = await asleep(stage, session.id)
    await stage.admit(session.id, "later")

    await stage.engine.interrupt(session.id, leaving=True)
    await first
    await stage.engine.settled()

    assert (await stage.database.read(sessions.get, session.id)).summary.open_turn is None
    assert len(await stage.queued(session.id)) == 1


async def test_the_message_after_an_interrupt_at_quit_is_answered(tmp_path: Path, stages: list[Stage]) -> None:
    steps = SLEEP, ScriptStep(call=(ScriptedCall(name="look", arguments={}),)), ScriptStep(say="Good morning.")
    stages.append(stage := await set_up(tmp_path, *steps))
    session = await stage.session(source="chat")
    first = await asleep(stage, session.id)
    await stage.engine.interrupt(session.id, leaving=True)
    await first
    await stage.engine.close()
    stages.append(other := await set_up(tmp_path, *steps, database=stage.database))

    events = await other.play(session.id, "Hello")

    assert text_of([event for event in events if isinstance(event, ModelSaid)][-1].parts) == "Good morning."
    assert events[-1].outcome == "done"


async def test_the_message_after_an_interrupted_one_shot_turn_is_answered(tmp_path: Path, stages: list[Stage]) -> None:
    steps = SLEEP, ScriptStep(say="Good morning.")
    stages.append(stage := await set_up(tmp_path, *steps, leaves_queue=True))
    session = await stage.session(source="run")
    first = await asleep(stage, session.id)
    await stage.engine.interrupt(session.id)
    await first

    events = await stage.play(session.id, "Hello")

    assert events[-1].outcome == "done"
    assert not await stage.database.read(stop_requests, session.id)


async def test_a_stop_request_stops_only_the_turn_it_names(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, LOOK, ScriptStep(say="Hello.")))
    session = await stage.session()

    def leave_requests(tx: Transaction) -> None:
        """What older versions and a crash between two transactions leave."""
        input_queue.put(tx, session.id, Input("turn-of-its-own", "stop", None), at=1)
        input_queue.request_stop(tx, session.id, "turn-that-has-ended", at=1)

    await stage.database.write(leave_requests)

    events = await stage.play(session.id, "Hello")

    assert events[-1].outcome == "done"
    assert not await stage.database.read(stop_requests, session.id)


async def test_a_turn_with_a_stop_request_stays_stopped_after_its_worker_died(
    tmp_path: Path, stages: list[Stage]
) -> None:
    steps = SLEEP, ScriptStep(say="It goes on."), ScriptStep(say="Hello.")
    session_id, other = await left_with_a_request_to_stop(tmp_path, stages, *steps)

    other.engine.take_up(session_id)
    await other.engine.settled()
    stopped = (await other.log(session_id))[-1]
    events = await other.play(session_id, "Hello")

    assert isinstance(stopped, TurnEnded) and stopped.outcome == "interrupted"
    assert events[-1].outcome == "done"


async def test_resuming_a_turn_manually_overrides_an_older_stop_request(tmp_path: Path, stages: list[Stage]) -> None:
    steps = SLEEP, ScriptStep(say="It goes on.")
    session_id, other = await left_with_a_request_to_stop(tmp_path, stages, *steps)

    await other.engine.resume(session_id)
    await other.engine.settled()

    ended = (await other.log(session_id))[-1]
    assert isinstance(ended, TurnEnded) and ended.outcome == "done"


async def left_with_a_request_to_stop(tmp_path: Path, stages: list[Stage], *steps: ScriptStep) -> tuple[str, Stage]:
    """A session whose worker died during a turn, just after a stop request; and another worker."""
    stages.append(stage := await set_up(tmp_path, *steps))
    session = await stage.session()
    first = await asleep(stage, session.id)
    await stage.engine.close("gone")
    first.cancel()
    turn_id = (await stage.database.read(sessions.get, session.id)).summary.open_turn
    assert turn_id is not None
    await stage.database.write(input_queue.request_stop, session.id, turn_id, at=1)
    stages.append(other := await set_up(tmp_path, *steps, database=stage.database))
    return session.id, other


def stop_requests(tx: Transaction, session_id: str) -> list[str]:
    return [str(row[0]) for row in tx.all("input_queue.list_waiting", session=session_id) if row[1] == "stop"]


async def test_an_interrupting_message_ends_the_turn_and_goes_first(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, SLEEP, ScriptStep(say="At once."), ScriptStep(say="Later.")))
    session = await stage.session()
    first = await asleep(stage, session.id)
    await stage.admit(session.id, "later")

    urgent = await stage.play(session.id, "now", mode="interrupt")

    assert text_of(urgent[2].parts) == "At once."
    assert (await first)[-1].outcome == "interrupted"
    assert stage.hanging_tool.woken, "the tool was stopped"


async def test_steering_messages_join_the_running_turn_before_the_next_model_call(
    tmp_path: Path, stages: list[Stage]
) -> None:
    gate = asyncio.Event()
    stages.append(stage := await set_up(tmp_path, LOOK, ScriptStep(say="As you wish.")))
    session = await stage.session()
    run = stage.reader.run

    async def slow_run(arguments: dict[str, object], scene: object) -> object:
        gate.set()
        await asyncio.sleep(0.2)
        return await run(arguments, scene)  # type: ignore[arg-type]

    stage.reader.run = slow_run  # type: ignore[method-assign,assignment]
    turn = asyncio.create_task(stage.play(session.id, "Look"))
    await asyncio.wait_for(gate.wait(), 10)
    steered = await stage.play(session.id, "rather left", mode="steer")

    events = await turn
    assert [text_of(event.parts) for event in events if isinstance(event, UserSaid)] == ["Look", "rather left"]
    assert [message.text for message in stage.requests[1].messages][-1] == "rather left"
    assert isinstance(steered[-1], TurnEnded)
    assert steered[-1].turn_id == events[-1].turn_id


async def test_steering_messages_during_the_last_reply_extend_the_turn(tmp_path: Path, stages: list[Stage]) -> None:
    asked, go = asyncio.Event(), asyncio.Event()
    replies = iter(("Right it is.", "Left, then."))

    async def slow(request: ModelRequest) -> AsyncIterator[Delta | StreamRestarted | ModelReply]:
        asked.set()
        await go.wait()
        yield ModelReply(parts=(Text(next(replies)),), model="play", finish="stop")

    stages.append(stage := await set_up(tmp_path, ask=slow))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Which way?"))
    await asyncio.wait_for(asked.wait(), 10)
    admission = await stage.admit(session.id, "rather left", mode="steer")
    async with asyncio.timeout(10):
        while not stage.scheduler.sessions.active[session.id].queued:
            await asyncio.sleep(0)
    go.set()

    events = await turn
    said = [text_of(event.parts) for event in events if isinstance(event, UserSaid | ModelSaid)]
    assert said == ["Which way?", "Right it is.", "rather left", "Left, then."]
    assert [event.input_id for event in events if isinstance(event, UserSaid)][-1] == admission.turn_id
    assert sum(isinstance(event, TurnEnded) for event in await stage.log(session.id)) == 1


async def test_a_caller_that_does_not_wait_is_refused_and_nothing_is_stored(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, SLEEP, ScriptStep(say="One.")))
    session = await stage.session()
    first = await asleep(stage, session.id)

    with pytest.raises(Busy):
        await stage.play(session.id, "no waiting", mode=None)
    await stage.engine.interrupt(session.id)
    await first

    assert [text_of(event.parts) for event in await stage.log(session.id) if isinstance(event, UserSaid)] == ["Sleep"]


async def test_an_interrupted_reply_keeps_its_text(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="One two three four", delay_seconds=0.01, hang=True)))
    session = await stage.session()
    events = []
    async for item in stage.say(session.id, "Count"):
        if isinstance(item, LiveText) and "four" in item.text:
            await stage.engine.interrupt(session.id)
        if isinstance(item, Entry):
            events.append(item.event)

    said = [event for event in events if isinstance(event, ModelSaid)]
    assert [(text_of(event.parts), event.partial) for event in said] == [("One two three four", True)]
    assert events[-1].outcome == "interrupted"


async def test_interrupting_from_another_process_works_through_the_store(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, SLEEP))
    stages.append(other := await set_up(tmp_path, database=stage.database))
    session = await stage.session()
    turn = await asleep(stage, session.id)

    assert await other.engine.interrupt(session.id)

    events = await turn
    assert events[-1].outcome == "interrupted"
    assert [event.outcome for event in events if isinstance(event, ToolEnded)] == ["unknown"]


async def test_interrupting_an_idle_session_does_nothing(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="Hi.")))
    session = await stage.session()

    assert not await stage.engine.interrupt(session.id)
    assert (await stage.play(session.id, "Hi"))[-1].outcome == "done"


async def test_a_second_worker_queues_behind_the_first_and_sees_its_own_turn(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, SLEEP, ScriptStep(say="One.")))
    stages.append(other := await set_up(tmp_path, SLEEP, ScriptStep(say="One."), database=stage.database))
    session = await stage.session()
    first = await asleep(stage, session.id)

    second = asyncio.create_task(other.play(session.id, "one"))
    await asyncio.sleep(0.1)
    await other.engine.interrupt(session.id)

    await first
    assert [text_of(event.parts) for event in await second if isinstance(event, ModelSaid)] == ["One."]
    assert_well_formed(await stage.log(session.id))


async def test_promise_8_the_repeat_of_a_finished_request_is_the_same_turn(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="One."), ScriptStep(say="Two.")))
    session = await stage.session()

    first = await stage.play(session.id, "Hi", key="k1", caller="me")
    again = await stage.play(session.id, "Hi", key="k1", caller="me")

    assert first == again
    assert sum(isinstance(event, UserSaid) for event in await stage.log(session.id)) == 1
    with pytest.raises(KeyReused):
        await stage.play(session.id, "Something else", key="k1", caller="me")
    other = await stage.play(session.id, "Hi", key="k1", caller="somebody else")
    assert other[0].turn_id != first[0].turn_id


async def test_promise_8_the_repeat_of_a_running_request_joins_it(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, SLEEP, ScriptStep(say="One.")))
    session = await stage.session()
    first = asyncio.create_task(stage.play(session.id, "Sleep", key="k"))
    await asyncio.wait_for(stage.hanging_tool.sleeping.wait(), 10)

    again = asyncio.create_task(stage.play(session.id, "Sleep", key="k"))
    await asyncio.sleep(0.1)
    await stage.engine.interrupt(session.id)

    assert await first == await again
    assert sum(isinstance(event, ToolStarted) for event in await stage.log(session.id)) == 1


async def test_a_follower_that_disconnects_does_not_stop_the_turn(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="One two three four five", delay_seconds=0.02)))
    session = await stage.session()
    stream = stage.say(session.id, "Count")
    async for item in stream:
        if isinstance(item, LiveText):
            break
    await stream.aclose()  # type: ignore[attr-defined]

    async for item in stage.engine.watch(session.id):
        if isinstance(item, Entry) and isinstance(item.event, TurnEnded):
            break

    assert [event.outcome for event in await stage.log(session.id) if isinstance(event, TurnEnded)] == ["done"]


async def test_promise_2_the_text_so_far_is_saved_while_a_reply_streams(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="One two three four", hang=True)))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Count"))

    kept = None
    async with asyncio.timeout(10):
        while kept is None:
            await asyncio.sleep(0.05)
            kept = await stage.database.read(log.get_draft, session.id)

    assert kept.body == "One two three four"
    await stage.engine.interrupt(session.id)
    await turn
    assert await stage.database.read(log.get_draft, session.id) is None


async def test_promise_3_draining_leaves_the_turn_as_a_crash_would(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="One two three four", hang=True)))
    session = await stage.session()
    started = asyncio.Event()

    async def read() -> None:
        async for item in stage.say(session.id, "Count"):
            if isinstance(item, LiveText) and "four" in item.text:
                started.set()

    reader = asyncio.create_task(read())
    await asyncio.wait_for(started.wait(), 10)

    await stage.engine.drain(0.1)

    after, entries = await stage.engine.read(session.id)
    assert (after.state, after.lease_worker) == ("interrupted", None)
    assert [type(entry.event) for entry in entries[-1:]] == [UserSaid], "no signal adds a message to the log"
    assert (await stage.database.read(log.get_draft, session.id)).body == "One two three four"
    reader.cancel()


async def test_draining_lets_the_current_step_finish(tmp_path: Path, stages: list[Stage]) -> None:
    asked, go = asyncio.Event(), asyncio.Event()

    async def slow(request: ModelRequest) -> AsyncIterator[Delta | StreamRestarted | ModelReply]:
        asked.set()
        await go.wait()
        yield ModelReply(parts=(Text("One two three"),), model="play", finish="stop")

    stages.append(stage := await set_up(tmp_path, ask=slow))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Count"))
    await asyncio.wait_for(asked.wait(), 10)

    draining = asyncio.create_task(stage.engine.drain(10))
    async with asyncio.timeout(10):
        while not stage.engine.is_leaving:
            await asyncio.sleep(0)
    go.set()
    await draining

    assert (await turn)[-1].outcome == "done"
