"""Continuing from a turn, joining one, withdrawing one: what clients do that keep the id of a turn."""

import asyncio
from collections.abc import AsyncIterator
from contextlib import aclosing
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.admission.client_request import ContinueFrom
from holdfast.engine.streaming.bus import LiveText
from holdfast.engine.submission import AdmittedTurn
from holdfast.model.entry import Entry
from holdfast.model.errors import Conflict, NotFound
from holdfast.model.event import Event, Forked, InputDropped, ModelSaid, ReplyRestarted, TurnEnded, UserSaid
from holdfast.model.message import Text, text_of
from holdfast.model.provider import Delta, ModelReply, ModelRequest, StreamRestarted, TextDelta
from holdfast.providers.scripted import ScriptStep
from holdfast.store.repos import sessions, turn_lookup
from tests.engine.admission.test_client_request import ASKS, WEATHER, arrival, call_of, reply, send, tool, user
from tests.engine.stage import Stage, set_up
from tests.engine.well_formed import assert_well_formed

HANGS = ScriptStep(say="Hm. ", hang=True)


def after(arrived: Any) -> ContinueFrom:
    return ContinueFrom(arrived.admission.session.id, arrived.admission.turn_id)


async def wait_for_turn(stage: Stage, session_id: str) -> None:
    """Wait until the model is called."""
    async with asyncio.timeout(30):
        while not stage.requests or stage.requests[-1].messages[-1].role != "user":
            await asyncio.sleep(0)


async def test_the_newest_turn_is_continued_in_its_session(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    first, _ = await send(stage, user("one"))
    second, said = await send(stage, user("two"), after=after(first), model="echo")
    third, _ = await send(stage, user("three"), after=after(second))

    session_id = first.admission.session.id
    assert {second.admission.session.id, third.admission.session.id} == {session_id}
    assert reply(said) == "You said: two"
    assert_well_formed(await stage.log(session_id))


async def test_an_older_turn_is_continued_in_a_fork(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    first, _ = await send(stage, user("one"))
    await send(stage, user("two"), after=after(first))

    other, _ = await send(stage, user("three"), after=after(first))

    assert other.forked_from == first.admission.session.id and other.new
    log = await stage.log(other.admission.session.id)
    assert [text_of(event.parts) for event in log if isinstance(event, UserSaid)] == ["one", "three"]
    assert any(isinstance(event, Forked) for event in log)
    assert_well_formed(log)


async def test_messages_that_were_rewound_after_a_turn_do_not_count(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    first, _ = await send(stage, user("one"))
    second, _ = await send(stage, user("two"), after=after(first))
    await stage.engine.rewinds.undo_turns(first.admission.session.id)

    third, _ = await send(stage, user("three"), after=after(first))
    fourth, _ = await send(stage, user("four"), after=after(second))

    assert third.admission.session.id == first.admission.session.id
    assert fourth.forked_from == first.admission.session.id, "a rewound turn can be continued in a fork"
    log = await stage.log(fourth.admission.session.id)
    assert [text_of(event.parts) for event in log if isinstance(event, UserSaid)] == ["one", "two", "four"]


async def test_the_result_of_a_call_continues_the_turn_that_made_it(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ASKS, ScriptStep(say="It rains."), ScriptStep(say="It snows.")))
    first, said = await send(stage, user("weather?"), terms=WEATHER)
    call = call_of(said)

    _, then = await send(stage, tool(call.id, "Rain."), after=after(first), terms=WEATHER)
    other, _ = await send(stage, tool(call.id, "Snow."), after=after(first), terms=WEATHER)

    assert reply(then) == "It rains."
    assert other.forked_from is not None
    assert_well_formed(await stage.log(other.admission.session.id))


async def test_an_unknown_turn_cannot_be_continued(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    first, _ = await send(stage, user("one"))
    session_id = first.admission.session.id

    for missing in (ContinueFrom(session_id, "turn-unknown"), ContinueFrom("hf-unknown", first.admission.turn_id)):
        with pytest.raises(NotFound):
            await send(stage, user("two"), after=missing)
    await stage.database.write(sessions.trash, session_id, at=9)
    with pytest.raises(NotFound):
        await send(stage, user("two"), after=after(first))


async def test_a_running_turn_is_awaited_and_not_forked(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, HANGS, ScriptStep(say="Well.")))
    running = await stage.engine.submit(arrival(stage, user("one")), stream="live")
    await wait_for_turn(stage, running.admission.session.id)
    waiting = await stage.engine.submit(arrival(stage, user("two"), after=after(running)), stream="live")

    assert waiting.admission.session.id == running.admission.session.id
    with pytest.raises(Conflict):
        await stage.engine.submit(arrival(stage, user("three"), after=after(running)), stream="live")
    for received in (running, waiting):
        received.close()


async def test_queued_input_can_be_withdrawn_and_that_is_logged(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, HANGS))
    running = await stage.engine.submit(arrival(stage, user("one")), stream="live")
    session_id = running.admission.session.id
    await wait_for_turn(stage, session_id)
    waiting = await stage.engine.submit(arrival(stage, user("two"), after=after(running)), stream="live")
    turn_id = waiting.admission.turn_id

    assert await stage.engine.cancel(session_id, turn_id)
    async with asyncio.timeout(30):
        heard = [item.event async for item in waiting.follow() if isinstance(item, Entry)]

    assert isinstance(heard[-1], InputDropped) and text_of(heard[-1].parts) == "two"
    assert not await stage.engine.cancel(session_id, turn_id), "once"
    assert await stage.queued(session_id) == []
    for received in (running, waiting):
        received.close()


async def test_only_the_named_turn_is_ended(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="Well."), HANGS))
    first, _ = await send(stage, user("one"))
    running = await stage.engine.submit(arrival(stage, user("two"), after=after(first)), stream="live")
    session_id = first.admission.session.id

    assert not await stage.engine.cancel(session_id, first.admission.turn_id)
    assert await stage.engine.cancel(session_id, running.admission.turn_id)
    async with asyncio.timeout(30):
        ends = [item.event async for item in running.follow() if isinstance(item, Entry)]
    running.close()

    assert isinstance(ends[-1], TurnEnded) and ends[-1].outcome == "interrupted"


async def test_a_follower_that_joins_during_a_reply_gets_all_of_it_once(tmp_path: Path, stages: list[Stage]) -> None:
    slow = ScriptStep(say=" ".join(f"word{n}" for n in range(25)), delay_seconds=0.04)
    stages.append(stage := await set_up(tmp_path, slow))
    first = await stage.engine.submit(arrival(stage, user("one")), stream="durable")
    session_id = first.admission.session.id
    texts: list[str] = []
    async with asyncio.timeout(60), aclosing(first.follow()) as items:
        async for item in items:
            if isinstance(item, LiveText) and not texts:
                texts = [await joined(stage, session_id, first.admission.turn_id)]
    first.close()

    assert slow.say.startswith(texts[0]) and texts[0]


async def joined(stage: Stage, session_id: str, turn_id: str) -> str:
    session = await stage.database.read(sessions.get, session_id)
    place = await stage.database.read(turn_lookup.find, session_id, turn_id)
    assert place is not None
    received = await stage.engine.submit(AdmittedTurn.at(session, place), stream="durable")
    live, said = "", ""
    async with aclosing(received.follow()) as items:
        async for item in items:
            if isinstance(item, LiveText):
                live += item.text
            elif isinstance(item.event, ModelSaid):
                said = text_of(item.event.parts)
    received.close()
    assert said.startswith(live)
    return live


async def test_the_shown_part_of_a_restarted_reply_is_logged(tmp_path: Path, stages: list[Stage]) -> None:
    shown = asyncio.Event()

    async def ask(request: ModelRequest) -> AsyncIterator[Delta | StreamRestarted | ModelReply]:
        yield TextDelta("Wel")
        await shown.wait()
        yield StreamRestarted("the line broke")
        yield TextDelta("Hello.")
        yield ModelReply(parts=(Text("Hello."),), model="play", finish="stop")

    stages.append(stage := await set_up(tmp_path, ask=ask))
    received = await stage.engine.submit(arrival(stage, user("one")), stream="durable")
    heard: list[Event | LiveText] = []
    async with asyncio.timeout(30), aclosing(received.follow()) as items:
        async for item in items:
            heard.append(item.event if isinstance(item, Entry) else item)
            if isinstance(item, LiveText):
                shown.set()
    received.close()

    [restarted] = [event for event in heard if isinstance(event, ReplyRestarted)]
    assert (restarted.text, restarted.reason) == ("Wel", "the line broke")
    log = await stage.log(received.admission.session.id)
    assert reply(log) == "Hello."
    assert_well_formed(log)
    assert all("Wel" not in message.text for request in stage.requests for message in request.messages)
