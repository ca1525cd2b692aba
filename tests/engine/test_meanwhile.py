"""Input that arrives while a turn runs, and requests to stop it."""

import asyncio
from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.engine.bus import Live
from holdfast.model.asking import Delta, Reply, Request, Restarted
from holdfast.model.entry import Entry
from holdfast.model.errors import Busy, KeyReused
from holdfast.model.event import ModelSaid, ToolEnded, ToolStarted, TurnEnded, UserSaid
from holdfast.model.message import Text, text_of
from holdfast.providers.scripted import Call, Step
from holdfast.store import log, sessions
from tests.engine.stage import Stage, set_up
from tests.engine.well_formed import assert_well_formed

SLEEP = Step(say="Good night.", call=(Call(name="sleep", arguments={}),))
LOOK = Step(call=(Call(name="look", arguments={}),))


async def asleep(stage: Stage, session_id: str) -> "asyncio.Task[list[object]]":
    """A turn that sits in a tool which never returns."""
    turn = asyncio.create_task(stage.play(session_id, "Sleep"))
    await asyncio.wait_for(stage.sleeper.sleeping.wait(), 10)
    return turn


async def test_words_wait_in_order_and_each_gets_its_turn(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, SLEEP, Step(say="One."), Step(say="Two.")))
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


async def test_words_that_wait_survive_the_worker(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, SLEEP, Step(say="One.")))
    session = await stage.session(source="run")
    first = await asleep(stage, session.id)
    await stage.engine.admit(session.id, "one")
    await stage.engine.close("gone")
    first.cancel()
    stages.append(other := await set_up(tmp_path, SLEEP, Step(say="One."), Step(say="Two."), database=stage.database))

    await other.play(session.id, "two")

    log_ = await other.log(session.id)
    assert_well_formed(log_)
    assert [text_of(event.parts) for event in log_ if isinstance(event, UserSaid)] == ["Sleep", "one", "two"]


async def test_a_worker_that_leaves_stops_a_turn_that_other_words_wait_behind(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, SLEEP, Step(say="One.")))
    session = await stage.session()

    # The second words come before the first have been taken in hand.
    await asyncio.gather(stage.engine.admit(session.id, "Sleep"), stage.engine.admit(session.id, "one"))
    await asyncio.wait_for(stage.sleeper.sleeping.wait(), 10)
    await stage.engine.close()

    assert stage.sleeper.woken
    assert not [task for task in asyncio.all_tasks() if task.get_name().startswith("serve")]


async def test_words_whose_turn_was_begun_by_a_worker_that_left_are_answered_by_the_one_who_waits(
    tmp_path: Path, stages: list[Stage]
) -> None:
    steps = SLEEP, SLEEP, Step(say="Here I am.")
    stages.append(stage := await set_up(tmp_path, *steps))
    stages.append(other := await set_up(tmp_path, *steps, database=stage.database))
    session = await stage.session(source="run")
    first = await asleep(stage, session.id)
    second = asyncio.create_task(other.play(session.id, "Are you there?"))
    while not await stage.engine.waiting(session.id):
        await asyncio.sleep(0)
    stage.sleeper.sleeping.clear()
    await stage.engine.interrupt(session.id)
    await first
    await asyncio.wait_for(stage.sleeper.sleeping.wait(), 10)
    await stage.engine.drain(0)
    events = await second

    assert isinstance(events[-1], TurnEnded)
    assert events[-1].outcome == "done", "nobody else asked for this turn, and the one who did is still here"
    assert text_of([event for event in events if isinstance(event, ModelSaid)][-1].parts) == "Here I am."
    assert_well_formed(await other.log(session.id))


async def test_promise_9_a_worker_that_does_not_stay_begins_no_turn_for_one_who_has_gone(
    tmp_path: Path, stages: list[Stage]
) -> None:
    steps = SLEEP, Step(say="One."), Step(say="Two.")
    stages.append(stage := await set_up(tmp_path, *steps))
    stages.append(other := await set_up(tmp_path, *steps, database=stage.database))
    stage.engine.stays = False
    session = await stage.session(source="run")
    first = await asleep(stage, session.id)
    await other.engine.admit(session.id, "one")
    await other.engine.close()
    await stage.engine.interrupt(session.id)
    await first
    await stage.engine.settled()

    left = await stage.database.read(sessions.get, session.id)
    assert (left.summary.open_turn, left.lease_worker) == (None, None)
    assert [text_of(item.said.parts) for item in await stage.engine.waiting(session.id) if item.said] == ["one"]

    stages.append(next_ := await set_up(tmp_path, *steps, database=stage.database))
    await next_.play(session.id, "two")
    log_ = await next_.log(session.id)
    assert_well_formed(log_)
    assert [text_of(event.parts) for event in log_ if isinstance(event, UserSaid)] == ["Sleep", "one", "two"]


async def test_whoever_interrupts_in_order_to_leave_begins_nothing_behind_it(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, SLEEP, Step(say="One.")))
    session = await stage.session()
    first = await asleep(stage, session.id)
    await stage.engine.admit(session.id, "later")

    await stage.engine.interrupt(session.id, leaving=True)
    await first
    await stage.engine.settled()

    assert (await stage.database.read(sessions.get, session.id)).summary.open_turn is None
    assert len(await stage.engine.waiting(session.id)) == 1


async def test_an_interrupting_message_ends_the_turn_and_goes_first(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, SLEEP, Step(say="At once."), Step(say="Later.")))
    session = await stage.session()
    first = await asleep(stage, session.id)
    await stage.engine.admit(session.id, "later")

    urgent = await stage.play(session.id, "now", mode="interrupt")

    assert text_of(urgent[2].parts) == "At once."
    assert (await first)[-1].outcome == "interrupted"
    assert stage.sleeper.woken, "the tool was stopped"


async def test_steering_words_join_the_running_turn_before_the_model_is_asked_again(
    tmp_path: Path, stages: list[Stage]
) -> None:
    gate = asyncio.Event()
    stages.append(stage := await set_up(tmp_path, LOOK, Step(say="As you wish.")))
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


async def test_steering_words_that_come_during_the_last_reply_have_the_turn_go_on(
    tmp_path: Path, stages: list[Stage]
) -> None:
    asked, go = asyncio.Event(), asyncio.Event()
    replies = iter(("Right it is.", "Left, then."))

    async def slow(request: Request) -> AsyncIterator[Delta | Restarted | Reply]:
        asked.set()
        await go.wait()
        yield Reply(parts=(Text(next(replies)),), model="play", finish="stop")

    stages.append(stage := await set_up(tmp_path, ask=slow))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Which way?"))
    await asyncio.wait_for(asked.wait(), 10)
    admission = await stage.engine.admit(session.id, "rather left", mode="steer")
    async with asyncio.timeout(10):
        while not stage.coordinator._hands[session.id].waiting:
            await asyncio.sleep(0)
    go.set()

    events = await turn
    said = [text_of(event.parts) for event in events if isinstance(event, UserSaid | ModelSaid)]
    assert said == ["Which way?", "Right it is.", "rather left", "Left, then."]
    assert [event.input_id for event in events if isinstance(event, UserSaid)][-1] == admission.turn_id
    assert sum(isinstance(event, TurnEnded) for event in await stage.log(session.id)) == 1


async def test_a_caller_who_will_not_wait_is_refused_and_nothing_is_kept(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, SLEEP, Step(say="One.")))
    session = await stage.session()
    first = await asleep(stage, session.id)

    with pytest.raises(Busy):
        await stage.play(session.id, "no waiting", mode=None)
    await stage.engine.interrupt(session.id)
    await first

    assert [text_of(event.parts) for event in await stage.log(session.id) if isinstance(event, UserSaid)] == ["Sleep"]


async def test_an_interrupted_reply_keeps_what_was_said(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, Step(say="One two three four", delay_seconds=0.01, hang=True)))
    session = await stage.session()
    events = []
    async for item in stage.engine.say(session.id, "Count"):
        if isinstance(item, Live) and "four" in item.text:
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


async def test_interrupting_a_session_that_waits_does_nothing(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, Step(say="Hi.")))
    session = await stage.session()

    assert not await stage.engine.interrupt(session.id)
    assert (await stage.play(session.id, "Hi"))[-1].outcome == "done"


async def test_a_second_worker_queues_behind_the_first_and_sees_its_own_turn(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, SLEEP, Step(say="One.")))
    stages.append(other := await set_up(tmp_path, SLEEP, Step(say="One."), database=stage.database))
    session = await stage.session()
    first = await asleep(stage, session.id)

    second = asyncio.create_task(other.play(session.id, "one"))
    await asyncio.sleep(0.1)
    await other.engine.interrupt(session.id)

    await first
    assert [text_of(event.parts) for event in await second if isinstance(event, ModelSaid)] == ["One."]
    assert_well_formed(await stage.log(session.id))


async def test_promise_8_the_repeat_of_a_finished_request_is_the_same_turn(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, Step(say="One."), Step(say="Two.")))
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
    stages.append(stage := await set_up(tmp_path, SLEEP, Step(say="One.")))
    session = await stage.session()
    first = asyncio.create_task(stage.play(session.id, "Sleep", key="k"))
    await asyncio.wait_for(stage.sleeper.sleeping.wait(), 10)

    again = asyncio.create_task(stage.play(session.id, "Sleep", key="k"))
    await asyncio.sleep(0.1)
    await stage.engine.interrupt(session.id)

    assert await first == await again
    assert sum(isinstance(event, ToolStarted) for event in await stage.log(session.id)) == 1


async def test_a_reader_who_leaves_does_not_stop_the_turn(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, Step(say="One two three four five", delay_seconds=0.02)))
    session = await stage.session()
    stream = stage.engine.say(session.id, "Count")
    async for item in stream:
        if isinstance(item, Live):
            break
    await stream.aclose()  # type: ignore[attr-defined]

    async for item in stage.engine.watch(session.id):
        if isinstance(item, Entry) and isinstance(item.event, TurnEnded):
            break

    assert [event.outcome for event in await stage.log(session.id) if isinstance(event, TurnEnded)] == ["done"]


async def test_promise_2_the_text_so_far_is_kept_while_a_reply_streams(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, Step(say="One two three four", hang=True)))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Count"))

    kept = None
    async with asyncio.timeout(10):
        while kept is None:
            await asyncio.sleep(0.05)
            kept = await stage.database.read(log.draft, session.id)

    assert kept.body == "One two three four"
    await stage.engine.interrupt(session.id)
    await turn
    assert await stage.database.read(log.draft, session.id) is None


async def test_promise_3_draining_leaves_the_turn_as_a_crash_would(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, Step(say="One two three four", hang=True)))
    session = await stage.session()
    started = asyncio.Event()

    async def read() -> None:
        async for item in stage.engine.say(session.id, "Count"):
            if isinstance(item, Live) and "four" in item.text:
                started.set()

    reader = asyncio.create_task(read())
    await asyncio.wait_for(started.wait(), 10)

    await stage.engine.drain(0.1)

    after, entries = await stage.engine.read(session.id)
    assert (after.state, after.lease_worker) == ("interrupted", None)
    assert [type(entry.event) for entry in entries[-1:]] == [UserSaid], "no signal puts words into the log"
    assert (await stage.database.read(log.draft, session.id)).body == "One two three four"
    reader.cancel()


async def test_draining_lets_the_step_in_hand_finish(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, Step(say="One two three", delay_seconds=0.05)))
    session = await stage.session()
    turn = asyncio.create_task(stage.play(session.id, "Count"))
    await asyncio.sleep(0.05)

    await stage.engine.drain(10)

    assert (await turn)[-1].outcome == "done"
