"""Admission of a client's request: the rules of `engine.admission.admit_request`, on a real store."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from holdfast.engine.admission.client_request import AdmittedRequest, ClientRequest
from holdfast.engine.admission.history_match import ClientMessage
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.model.entry import Entry
from holdfast.model.errors import Busy, Invalid, KeyReused, NotFound
from holdfast.model.event import (
    ClientTool,
    Event,
    ModelSaid,
    RequestOptions,
    ToolEnded,
    TurnEnded,
    TurnStarted,
    UserSaid,
)
from holdfast.model.ids import SESSION, TURN
from holdfast.model.message import Text, ToolCall, text_of
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.repos import aliases, leases, session_list, sessions, workers
from tests.engine.stage import Stage, gone, set_up
from tests.engine.well_formed import assert_well_formed
from tests.fakes.crashing import Crash, CrashingDatabase

WEATHER = RequestOptions(tools=(ClientTool(name="weather", description="Tells the weather."),))
ASKS = ScriptStep(say="Let me ask.", call=(ScriptedCall(name="weather", arguments={"place": "Bonn"}),))


def user(text: str) -> ClientMessage:
    return ClientMessage(role="user", parts=(Text(text),))


def assistant(text: str, *calls: ToolCall) -> ClientMessage:
    return ClientMessage(role="assistant", parts=(Text(text),) if text else (), calls=calls)


def tool(call_id: str, text: str) -> ClientMessage:
    return ClientMessage(role="tool", parts=(Text(text),), call_id=call_id)


def arrival(stage: Stage, *messages: ClientMessage, **more: Any) -> ClientRequest:
    ids = stage.engine.services.ids
    return ClientRequest(
        turn_id=ids.make(TURN),
        new_id=ids.make(SESSION),
        messages=messages,
        **{"caller": "api:", "default_model": "play", "model": "play", **more},
    )


async def send(stage: Stage, *messages: ClientMessage, **more: Any) -> tuple[AdmittedRequest, list[Event]]:
    """Send it and follow its turn to the end."""
    received = await stage.engine.submit(arrival(stage, *messages, **more), stream="live")
    try:
        items = [item async for item in received.follow()]
    finally:
        received.close()
    return received, [item.event for item in items if isinstance(item, Entry)]


def reply(events: list[Event]) -> str:
    return "".join(text_of(event.parts) for event in events if isinstance(event, ModelSaid))


def call_of(events: list[Event]) -> ToolCall:
    made = [part for e in events if isinstance(e, ModelSaid) for part in e.parts if isinstance(part, ToolCall)]
    return made[-1]


def spoken(events: list[Event]) -> list[str]:
    said = [event for event in events if isinstance(event, UserSaid | ModelSaid | ToolEnded)]
    return [f"{type(event).__name__}: {text_of(event.parts)}" for event in said]


async def test_only_new_messages_are_added_to_the_log(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    first, said = await send(stage, user("one"), model="echo")
    second, _ = await send(stage, user("one"), assistant(reply(said)), user("two"), model="echo")

    log = await stage.log(first.admission.session.id)

    assert second.admission.session.id == first.admission.session.id
    assert spoken(log) == ["UserSaid: one", "ModelSaid: You said: one", "UserSaid: two", "ModelSaid: You said: two"]


async def test_a_foreign_history_is_logged_as_if_it_had_run_here(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(
        stage := await set_up(tmp_path, ScriptStep(say="x"), ScriptStep(say="x"), ScriptStep(say="It is dry."))
    )
    call = ToolCall("c9", "weather", "{}")

    arrived, _ = await send(
        stage, user("one"), assistant("", call), tool("c9", "Sun."), assistant("Sunny."), user("two")
    )

    log = await stage.log(arrived.admission.session.id)
    assert_well_formed(log)
    assert spoken(log) == [
        "UserSaid: one",
        "ModelSaid: ",
        "ToolEnded: Sun.",
        "ModelSaid: Sunny.",
        "UserSaid: two",
        "ModelSaid: It is dry.",
    ]
    assert len({message.seq for message in stage.requests[0].messages}) == 5


async def test_a_call_of_a_client_tool_ends_the_turn_and_its_result_starts_the_next(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, ASKS, ScriptStep(say="It rains.")))
    first, said = await send(stage, user("weather?"), terms=WEATHER)
    call = call_of(said)

    second, then = await send(
        stage, user("weather?"), assistant("Let me ask.", call), tool(call.id, "Rain."), terms=WEATHER
    )

    ended = said[-1]
    assert isinstance(ended, TurnEnded)
    assert (ended.outcome, ended.awaiting) == ("done", (call.id,))
    assert second.admission.session.id == first.admission.session.id
    assert reply(then) == "It rains."
    assert_well_formed(await stage.log(first.admission.session.id))
    assert [spec.name for spec in stage.requests[0].tools][-1] == "weather"


async def test_calls_of_both_kinds_in_one_reply_are_run_by_their_owners(tmp_path: Path, stages: list[Stage]) -> None:
    both = ScriptStep(call=(ScriptedCall(name="look"), ScriptedCall(name="weather")))
    stages.append(stage := await set_up(tmp_path, both, ScriptStep(say="Done.")))
    first, said = await send(stage, user("go"), terms=WEATHER)

    ended = said[-1]
    assert isinstance(ended, TurnEnded)
    assert stage.reader.runs == 1
    assert len(ended.awaiting) == 1
    _, then = await send(stage, tool(ended.awaiting[0], "Rain."), terms=WEATHER, ref=first.admission.session.id)
    assert reply(then) == "Done."
    assert_well_formed(await stage.log(first.admission.session.id))


async def test_a_client_tool_replaces_ours_of_the_same_name(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(
        stage := await set_up(tmp_path, ScriptStep(call=(ScriptedCall(name="mail", arguments={"to": "bo"}),)))
    )

    _, said = await send(stage, user("mail bo"), terms=RequestOptions(tools=(ClientTool(name="mail"),)))

    assert isinstance(said[-1], TurnEnded) and said[-1].awaiting
    assert not stage.mailer.outbox.exists(), "the server must not run it"


@pytest.mark.parametrize("through", ["the api", "another face"])
async def test_a_message_instead_of_a_result_closes_the_call(tmp_path: Path, stages: list[Stage], through: str) -> None:
    stages.append(stage := await set_up(tmp_path, ASKS, ScriptStep(say="As you wish.")))
    first, _ = await send(stage, user("weather?"), terms=WEATHER)
    session_id = first.admission.session.id

    if through == "the api":
        await send(stage, user("never mind"), ref=session_id)
    else:
        await stage.play(session_id, "never mind")

    log = await stage.log(session_id)
    assert_well_formed(log)
    [closed] = [event for event in log if isinstance(event, ToolEnded)]
    assert closed.outcome == "unknown" and "gave no result" in text_of(closed.parts)


async def test_a_result_that_arrives_after_the_turn_continued_is_refused(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ASKS, ScriptStep(hang=True)))
    first, said = await send(stage, user("weather?"), terms=WEATHER)
    session_id, call = first.admission.session.id, call_of(said)
    going = await stage.engine.submit(arrival(stage, user("never mind"), ref=session_id), stream="live")
    with pytest.raises(Invalid, match="waits for a result"):
        await send(stage, tool(call.id, "Rain."), terms=WEATHER, ref=session_id)
    going.close()
    await stage.engine.interrupt(session_id)
    await stage.engine.settled()

    assert_well_formed(await stage.log(session_id))


@pytest.mark.parametrize(
    "messages",
    [
        pytest.param((tool("c1", "x"),), id="no call at all"),
        pytest.param((user("a"), assistant("", ToolCall("c1", "f")), tool("c2", "x")), id="another call"),
        pytest.param((user("a"), assistant("b")), id="nothing to answer"),
    ],
)
async def test_an_invalid_request_is_refused_and_leaves_nothing(
    tmp_path: Path, stages: list[Stage], messages: tuple[ClientMessage, ...]
) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))

    with pytest.raises(Invalid):
        await send(stage, *messages)

    page = await stage.database.read(session_list.list_page, session_list.EVERYTHING, limit=10)
    assert page.sessions == []


async def test_a_request_without_messages_to_a_session_with_a_turn_is_refused(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    first, _ = await send(stage, user("hello"))

    with pytest.raises(Invalid):
        await send(stage, ref=first.admission.session.id, system="another text")


async def test_an_alias_finds_its_session_for_a_request(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    first, _ = await send(stage, user("one"))
    await stage.database.write(aliases.add, "20260101_old", first.admission.session.id, at=1)

    second, _ = await send(stage, user("two"), ref="20260101_old", channel="key:20260101_old")

    assert second.admission.session.id == first.admission.session.id


async def test_a_session_of_another_interface_is_matched_by_its_id(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    chat = (await stage.engine.open(OpenRequest(source="chat"))).session.id
    for words in ("one", "two"):
        await stage.play(chat, words)

    extended, _ = await send(
        stage, user("one"), assistant("You said: one"), user("two"), assistant("You said: two"), user("3"), ref=chat
    )
    edited, _ = await send(stage, user("one"), assistant("You said: one"), user("zwei"), ref=chat)

    assert extended.admission.session.id == chat
    assert edited.forked_from == chat


async def test_rewound_messages_can_be_replaced_without_a_fork(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    first, _ = await send(stage, user("one"), channel="key:a")
    await send(stage, user("one"), assistant("You said: one"), user("two"), channel="key:a")
    await stage.engine.rewinds.undo_turns(first.admission.session.id)

    other, _ = await send(stage, user("one"), assistant("You said: one"), user("zwei"), channel="key:a")

    assert other.forked_from is None
    assert other.admission.session.id == first.admission.session.id


async def test_messages_without_a_reply_yet_are_not_added_twice(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="1"), ScriptStep(hang=True), model="play"))
    first, _ = await send(stage, user("one"))
    session_id = first.admission.session.id
    running = await stage.engine.submit(
        arrival(stage, user("one"), assistant("1"), user("two"), ref=session_id), stream="live"
    )
    waiting = await stage.engine.submit(
        arrival(stage, user("one"), assistant("1"), user("two"), user("three"), ref=session_id), stream="live"
    )
    after = await stage.engine.submit(
        arrival(stage, user("one"), assistant("1"), user("two"), user("three"), user("four"), ref=session_id),
        stream="live",
    )
    for received in (running, waiting, after):
        received.close()

    queued = await stage.queued(session_id)
    assert [text_of(item.said.parts) for item in queued if item.said] == ["three", "four"]
    assert {r.admission.session.id for r in (running, waiting, after)} == {session_id}


async def test_options_of_queued_input_apply_to_its_own_turn(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(hang=True), ScriptStep(say="x"), ScriptStep(say="y")))
    running = await stage.engine.submit(arrival(stage, user("one"), channel="key:a"), stream="live")
    terms = RequestOptions(temperature=0.5, max_tokens=7, tools=WEATHER.tools)
    waiting = await stage.engine.submit(
        arrival(stage, user("two"), channel="key:a", terms=terms, mode="interrupt"), stream="live"
    )
    async for _ in waiting.follow():
        pass
    for received in (running, waiting):
        received.close()

    asked = stage.requests[-1]
    assert (asked.temperature, asked.max_tokens, asked.tools[-1].name) == (0.5, 7, "weather")
    started = [e for e in await stage.log(waiting.admission.session.id) if isinstance(e, TurnStarted)]
    assert [event.terms.temperature for event in started] == [None, 0.5]


async def test_an_auxiliary_request_is_hidden_and_names_its_session(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    first, _ = await send(stage, user("one"), channel="key:a", system="Be kind.")

    side, _ = await send(stage, user("a title, please"), channel="key:a", system="Give titles.", auxiliary="likely")
    same, _ = await send(stage, user("two"), channel="key:a", system=" Be kind.\n")
    without, _ = await send(stage, user("three"), channel="key:a")

    assert side.admission.session.summary.side_of == first.admission.session.id
    assert same.admission.session.id == without.admission.session.id == first.admission.session.id
    listed = await stage.database.read(session_list.list_page, session_list.SessionFilters(), limit=10)
    assert [session.id for session in listed.sessions] == [first.admission.session.id]


async def test_a_key_is_bound_to_its_request(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    first, said = await send(stage, user("one"), key="k", request="digest-1")

    again, replayed = await send(stage, user("one"), key="k", request="digest-1")
    with pytest.raises(KeyReused):
        await send(stage, user("two"), key="k", request="digest-2")

    assert again.admission.repeated
    assert again.admission.turn_id == first.admission.turn_id
    assert reply(replayed) == reply(said)


async def test_an_unknown_id_and_one_in_the_trash_are_not_found(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    first, _ = await send(stage, user("one"))
    await stage.database.write(sessions.trash, first.admission.session.id, at=1)

    for ref in (first.admission.session.id, "hf-nobody"):
        with pytest.raises(NotFound):
            await send(stage, user("two"), ref=ref)


async def test_a_name_whose_session_was_deleted_starts_a_new_one(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    first, _ = await send(stage, user("one"), channel="key:a")
    await stage.database.write(sessions.trash, first.admission.session.id, at=1)

    second, _ = await send(stage, user("two"), channel="key:a")

    assert second.new and second.admission.session.id != first.admission.session.id


async def test_a_caller_that_does_not_wait_is_not_blocked_by_a_dead_worker(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, model="echo"))
    first, _ = await send(stage, user("one"), channel="key:a")
    dead = await set_up(tmp_path, database=stage.database, who=gone())
    await stage.database.write(leases.take, first.admission.session.id, dead.worker_id)

    second, _ = await send(stage, user("two"), channel="key:a", mode=None)

    assert second.admission.session.id == first.admission.session.id


async def test_a_caller_that_does_not_wait_is_refused_during_a_turn(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(hang=True)))
    running = await stage.engine.submit(arrival(stage, user("one"), channel="key:a"), stream="live")

    with pytest.raises(Busy):
        await send(stage, user("two"), channel="key:a", mode=None)
    running.close()


@pytest.mark.parametrize("when", ["before", "after"])
@pytest.mark.parametrize("nth", range(1, 6))
async def test_promises_1_and_6_a_crash_at_any_commit_of_a_turn_with_a_clients_tool(
    tmp_path: Path, nth: int, when: Any
) -> None:
    stage = await set_up(tmp_path, ASKS, ScriptStep(say="It rains."))
    dying = CrashingDatabase(stage.database, nth, when)
    object.__setattr__(stage.engine.services, "database", dying)
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)
    try:
        async with asyncio.timeout(20):
            _, said = await send(stage, user("weather?"), terms=WEATHER, channel="key:a")
            await send(stage, tool(call_of(said).id, "Rain."), terms=WEATHER, channel="key:a")
    except Crash:
        pass
    for task in asyncio.all_tasks() - {asyncio.current_task()}:
        task.cancel()
    await stage.database.close()

    after = await set_up(tmp_path, ASKS, ScriptStep(say="It rains."), ScriptStep(say="Well."), ScriptStep(say="Well."))
    try:
        await after.database.write(workers.mark_dead, stage.worker_id, "killed", at=1)
        found, _ = await send(after, user("go on"), channel="key:a")
        log = await after.log(found.admission.session.id)
        assert_well_formed(log)
        if not found.new:
            assert "UserSaid: weather?" in spoken(log), "what was acknowledged is stored"
    finally:
        await after.engine.close()
        await after.database.close()


FAILS = ScriptStep(fail="refused", message="not now")
HISTORY = (user("one"), assistant("First."), user("two"))


@pytest.mark.parametrize(
    ("how", "again"),
    [
        ({"channel": "key:me"}, HISTORY),
        ({"channel": "key:me"}, (user("two"),)),
        ({}, HISTORY),
    ],
)
async def test_a_repeated_failed_request_replaces_the_failed_one(
    tmp_path: Path, stages: list[Stage], how: dict[str, str], again: tuple[ClientMessage, ...]
) -> None:
    stages.append(stage := await set_up(tmp_path, ScriptStep(say="First."), FAILS, FAILS, ScriptStep(say="Second.")))
    first, _ = await send(stage, user("one"), **how)
    outcomes = []
    for _ in range(3):
        arrived, events = await send(stage, *again, **how)
        outcomes.append(next(event.outcome for event in events if isinstance(event, TurnEnded)))

        assert arrived.admission.session.id == first.admission.session.id
        assert arrived.forked_from is None

    assert outcomes == ["failed", "failed", "done"]
    assert [text_of(message.parts) for message in stage.requests[-1].messages] == ["one", "First.", "two"]
    log = await stage.log(first.admission.session.id)
    assert spoken(log).count("UserSaid: two") == 3, "the log keeps every attempt"


async def test_a_result_of_the_clients_tool_whose_turn_failed_can_be_sent_again(
    tmp_path: Path, stages: list[Stage]
) -> None:
    stages.append(stage := await set_up(tmp_path, ASKS, FAILS, ScriptStep(say="It rains.")))
    first, said = await send(stage, user("weather?"), channel="key:me", terms=WEATHER)
    call = call_of(said)
    history = (user("weather?"), assistant("Let me ask.", call), tool(call.id, "Rain."))

    await send(stage, *history, channel="key:me", terms=WEATHER)
    again, events = await send(stage, *history, channel="key:me", terms=WEATHER)

    assert reply(events) == "It rains."
    assert again.admission.session.id == first.admission.session.id
    assert [message.role for message in stage.requests[-1].messages] == ["user", "assistant", "tool"]


async def test_another_message_after_a_failure_does_not_replace_it(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, FAILS, ScriptStep(say="Both.")))
    await send(stage, user("one"), channel="key:me")
    await send(stage, user("two"), channel="key:me")

    assert [text_of(message.parts) for message in stage.requests[-1].messages] == ["one", "two"]


async def test_a_turn_in_which_a_tool_ran_is_not_rewound(tmp_path: Path, stages: list[Stage]) -> None:
    step = ScriptStep(say="Looking.", call=(ScriptedCall(name="note", arguments={"text": "x"}),))
    stages.append(stage := await set_up(tmp_path, step, FAILS, ScriptStep(say="Done.")))
    await send(stage, user("one"), channel="key:me")
    await send(stage, user("one"), channel="key:me")

    roles = [message.role for message in stage.requests[-1].messages]
    assert roles == ["user", "assistant", "tool", "user"]


async def test_an_auxiliary_request_after_a_failure_is_still_auxiliary(tmp_path: Path, stages: list[Stage]) -> None:
    stages.append(stage := await set_up(tmp_path, FAILS, ScriptStep(say="A title.")))
    first, _ = await send(stage, user("hi"), channel="key:me", system="Be kind.")
    aside, _ = await send(stage, user("hi"), channel="key:me", system="Give it a title.", auxiliary="likely")

    assert aside.admission.session.id != first.admission.session.id
    assert await stage.database.read(aliases.get_channel_session, "key:me") == first.admission.session.id
