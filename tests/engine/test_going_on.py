"""Going on from a turn, joining one, taking one back: what clients do that keep the id of a turn."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.arrive import After
from holdfast.engine.bus import Live
from holdfast.model.asking import Delta, Reply, Request, Restarted, TextDelta
from holdfast.model.entry import Entry
from holdfast.model.errors import Conflict, NotFound
from holdfast.model.event import Event, Forked, InputDropped, ModelSaid, ReplyRestarted, TurnEnded, UserSaid
from holdfast.model.message import Text, text_of
from holdfast.providers.scripted import Step
from holdfast.store import sessions, turns
from tests.engine.stage import Stage, set_up
from tests.engine.test_arrive import ASKS, WEATHER, arrival, call_of, reply, send, tool, user
from tests.engine.well_formed import assert_well_formed

HANGS = Step(say="Hm. ", hang=True)


def after(arrived: Any) -> After:
    return After(arrived.admission.session.id, arrived.admission.turn_id)


async def wait_for_turn(stage: Stage, session_id: str) -> None:
    """Until the model is being asked."""
    async with asyncio.timeout(30):
        while not stage.requests or stage.requests[-1].messages[-1].role != "user":
            await asyncio.sleep(0)


async def test_the_newest_turn_is_gone_on_from_in_its_session(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    first, _ = await send(stage, user("one"))
    second, said = await send(stage, user("two"), after=after(first), model="echo")
    third, _ = await send(stage, user("three"), after=after(second))

    session_id = first.admission.session.id
    assert {second.admission.session.id, third.admission.session.id} == {session_id}
    assert reply(said) == "You said: two"
    assert_well_formed(await stage.log(session_id))


async def test_an_older_turn_is_gone_on_from_in_a_fork(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    first, _ = await send(stage, user("one"))
    await send(stage, user("two"), after=after(first))

    other, _ = await send(stage, user("three"), after=after(first))

    assert other.forked_from == first.admission.session.id and other.new
    log = await stage.log(other.admission.session.id)
    assert [text_of(event.parts) for event in log if isinstance(event, UserSaid)] == ["one", "three"]
    assert any(isinstance(event, Forked) for event in log)
    assert_well_formed(log)


async def test_what_was_said_after_a_turn_and_taken_back_does_not_count(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    first, _ = await send(stage, user("one"))
    second, _ = await send(stage, user("two"), after=after(first))
    await stage.engine.rewind(first.admission.session.id)

    third, _ = await send(stage, user("three"), after=after(first))
    fourth, _ = await send(stage, user("four"), after=after(second))

    assert third.admission.session.id == first.admission.session.id
    assert fourth.forked_from == first.admission.session.id, "what was taken back can be gone on from elsewhere"
    log = await stage.log(fourth.admission.session.id)
    assert [text_of(event.parts) for event in log if isinstance(event, UserSaid)] == ["one", "two", "four"]


async def test_the_result_of_a_call_goes_on_from_the_turn_that_asked(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ASKS, Step(say="It rains."), Step(say="It snows.")))
    first, said = await send(stage, user("weather?"), terms=WEATHER)
    call = call_of(said)

    _, then = await send(stage, tool(call.id, "Rain."), after=after(first), terms=WEATHER)
    other, _ = await send(stage, tool(call.id, "Snow."), after=after(first), terms=WEATHER)

    assert reply(then) == "It rains."
    assert other.forked_from is not None
    assert_well_formed(await stage.log(other.admission.session.id))


async def test_a_turn_that_is_not_there_cannot_be_gone_on_from(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    first, _ = await send(stage, user("one"))
    session_id = first.admission.session.id

    for missing in (After(session_id, "turn-unknown"), After("hf-unknown", first.admission.turn_id)):
        with pytest.raises(NotFound):
            await send(stage, user("two"), after=missing)
    await stage.database.write(sessions.trash, session_id, at=9)
    with pytest.raises(NotFound):
        await send(stage, user("two"), after=after(first))


async def test_a_running_turn_is_waited_for_and_no_fork_is_made_of_it(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, HANGS, Step(say="Well.")))
    running = await stage.engine.receive(arrival(stage, user("one")))
    await wait_for_turn(stage, running.arrived.admission.session.id)
    waiting = await stage.engine.receive(arrival(stage, user("two"), after=after(running.arrived)))

    assert waiting.arrived.admission.session.id == running.arrived.admission.session.id
    with pytest.raises(Conflict):
        await stage.engine.receive(arrival(stage, user("three"), after=after(running.arrived)))
    for received in (running, waiting):
        received.close()


async def test_words_that_wait_can_be_taken_back_and_are_on_record(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, HANGS))
    running = await stage.engine.receive(arrival(stage, user("one")))
    session_id = running.arrived.admission.session.id
    await wait_for_turn(stage, session_id)
    waiting = await stage.engine.receive(arrival(stage, user("two"), after=after(running.arrived)))
    turn_id = waiting.arrived.admission.turn_id

    assert await stage.engine.withdraw(session_id, turn_id)
    async with asyncio.timeout(30):
        heard = [item.event async for item in waiting.follow() if isinstance(item, Entry)]

    assert isinstance(heard[-1], InputDropped) and text_of(heard[-1].parts) == "two"
    assert not await stage.engine.withdraw(session_id, turn_id), "once"
    assert await stage.engine.waiting(session_id) == []
    for received in (running, waiting):
        received.close()


async def test_only_the_turn_that_is_meant_is_ended(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, Step(say="Well."), HANGS))
    first, _ = await send(stage, user("one"))
    running = await stage.engine.receive(arrival(stage, user("two"), after=after(first)))
    session_id = first.admission.session.id

    assert not await stage.engine.withdraw(session_id, first.admission.turn_id)
    assert await stage.engine.withdraw(session_id, running.arrived.admission.turn_id)
    async with asyncio.timeout(30):
        ends = [item.event async for item in running.follow() if isinstance(item, Entry)]
    running.close()

    assert isinstance(ends[-1], TurnEnded) and ends[-1].outcome == "interrupted"


async def test_one_who_joins_in_the_middle_of_a_reply_gets_all_of_it_once(tmp_path: Path, stages: list[Stage]) -> None:
    slow = Step(say=" ".join(f"word{n}" for n in range(25)), delay_seconds=0.04)
    stages.append(stage := await set_up(tmp_path, slow))
    first = await stage.engine.receive(arrival(stage, user("one")), kept=True)
    session_id = first.arrived.admission.session.id
    texts: list[str] = []
    async with asyncio.timeout(60), aclosing(first.follow()) as items:
        async for item in items:
            if isinstance(item, Live) and not texts:
                texts = [await joined(stage, session_id, first.arrived.admission.turn_id)]
    first.close()

    assert slow.say.startswith(texts[0]) and texts[0]


async def joined(stage: Stage, session_id: str, turn_id: str) -> str:
    session = await stage.database.read(sessions.get, session_id)
    place = await stage.database.read(turns.find, session_id, turn_id)
    assert place is not None
    received = await stage.engine.join(session, place)
    live, said = "", ""
    async with aclosing(received.follow()) as items:
        async for item in items:
            if isinstance(item, Live):
                live += item.text
            elif isinstance(item.event, ModelSaid):
                said = text_of(item.event.parts)
    received.close()
    assert said.startswith(live)
    return live


async def test_what_was_shown_of_a_reply_that_is_begun_anew_stays_on_record(
    tmp_path: Path, stages: list[Stage]
) -> None:
    shown = asyncio.Event()

    async def ask(request: Request) -> AsyncIterator[Delta | Restarted | Reply]:
        yield TextDelta("Wel")
        await shown.wait()
        yield Restarted("the line broke")
        yield TextDelta("Hello.")
        yield Reply(parts=(Text("Hello."),), model="play", finish="stop")

    stages.append(stage := await set_up(tmp_path, ask=ask))
    received = await stage.engine.receive(arrival(stage, user("one")), kept=True)
    heard: list[Event | Live] = []
    async with asyncio.timeout(30), aclosing(received.follow()) as items:
        async for item in items:
            heard.append(item.event if isinstance(item, Entry) else item)
            if isinstance(item, Live):
                shown.set()
    received.close()

    [restarted] = [event for event in heard if isinstance(event, ReplyRestarted)]
    assert (restarted.text, restarted.reason) == ("Wel", "the line broke")
    log = await stage.log(received.arrived.admission.session.id)
    assert reply(log) == "Hello."
    assert_well_formed(log)
    assert all("Wel" not in message.text for request in stage.requests for message in request.messages)
