"""Complete turns in one process, on a real store."""

from collections.abc import AsyncIterator
from pathlib import Path

import msgspec
import pytest

from holdfast.model.event import ModelSaid, ToolEnded, ToolStarted
from holdfast.model.message import Text, ToolCall, text_of
from holdfast.model.provider import Delta, ModelReply, ModelRequest, StreamRestarted
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from tests.engine.stage import Stage, set_up


def kinds(events: list[object]) -> list[str]:
    return [type(event).__name__ for event in events]


async def test_a_turn_is_input_a_reply_and_an_end(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await set_up(tmp_path, ScriptStep(say="Hello there."))
    stages.append(stage)
    session = await stage.session()

    events = await stage.play(session.id, "Hi")

    assert kinds(events) == ["TurnStarted", "UserSaid", "ModelSaid", "TurnEnded"]
    assert text_of(events[2].parts) == "Hello there."
    assert events[3].outcome == "done"
    assert events[3].usage == msgspec.structs.replace(events[2].usage, unpriced=1)
    after, _ = await stage.engine.read(session.id)
    assert (after.state, after.lease_worker) == ("waiting", None)


async def test_calls_are_started_and_ended_in_the_log_before_the_model_sees_their_results(
    tmp_path: Path, stages: list[Stage]
) -> None:
    calls = [ScriptedCall(name="mail", arguments={"to": "bo"}), ScriptedCall(name="look", arguments={})]
    stage = await set_up(tmp_path, ScriptStep(call=calls), ScriptStep(say="Done."))
    stages.append(stage)
    session = await stage.session()

    events = await stage.play(session.id, "Mail Bo")

    assert kinds(events)[:5] == ["TurnStarted", "UserSaid", "ModelSaid", "ToolStarted", "ToolStarted"]
    assert {event.outcome for event in events if isinstance(event, ToolEnded)} == {"ok"}
    assert kinds(events)[-2:] == ["ModelSaid", "TurnEnded"]
    assert stage.mailer.outbox.read_text() == "bo\n"
    assert [message.role for message in stage.requests[1].messages] == ["user", "assistant", "tool", "tool"]


async def test_the_text_is_streamed_as_it_arrives(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await set_up(tmp_path, ScriptStep(say="One two three four."))
    stages.append(stage)
    session = await stage.session()

    assert await stage.live_text(session.id, "Count") == "One two three four."


async def test_a_second_turn_sees_the_first(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await set_up(tmp_path, ScriptStep(say="One."), ScriptStep(say="Two."))
    stages.append(stage)
    session = await stage.session()

    await stage.play(session.id, "first")
    await stage.play(session.id, "second")

    assert [message.text for message in stage.requests[1].messages] == ["first", "One.", "second"]


async def test_an_unknown_tool_and_bad_arguments_are_reported_to_the_model(tmp_path: Path, stages: list[Stage]) -> None:
    calls = [
        ScriptedCall(name="male", arguments={}),
        ScriptedCall(name="mail", arguments={"too": 1}),
        ScriptedCall(name="mail", arguments="{half"),
    ]
    stage = await set_up(tmp_path, ScriptStep(call=calls), ScriptStep(say="Sorry."))
    stages.append(stage)
    session = await stage.session()

    events = await stage.play(session.id, "go")

    ended = [event for event in events if isinstance(event, ToolEnded)]
    assert [event.outcome for event in ended] == ["failed", "failed", "failed"]
    assert "mail" in text_of(ended[0].parts)
    assert not any(isinstance(event, ToolStarted) for event in events)
    assert not stage.mailer.outbox.exists()


async def test_a_broken_tool_fails_its_call_and_not_the_turn(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await set_up(
        tmp_path, ScriptStep(call=[ScriptedCall(name="broken", arguments={})]), ScriptStep(say="It broke.")
    )
    stages.append(stage)
    session = await stage.session()

    events = await stage.play(session.id, "go")

    assert [event.outcome for event in events if isinstance(event, ToolEnded)] == ["failed"]
    assert events[-1].outcome == "done"


async def test_a_model_that_never_stops_calling_reaches_the_step_limit(tmp_path: Path, stages: list[Stage]) -> None:
    again = ScriptStep(call=[ScriptedCall(name="look", arguments={})])
    stage = await set_up(tmp_path, *[again] * 10, max_steps=3)
    stages.append(stage)
    session = await stage.session()

    events = await stage.play(session.id, "go")

    assert (events[-1].outcome, events[-1].code) == ("failed", "max_steps")
    assert sum(isinstance(event, ModelSaid) for event in events) == 3


async def test_a_step_that_takes_too_long_is_stopped_and_the_turn_names_it(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await set_up(tmp_path, ScriptStep(hang=True), step_seconds=0.2)
    stages.append(stage)
    session = await stage.session()

    events = await stage.play(session.id, "go")

    assert (events[-1].outcome, events[-1].code) == ("failed", "unreachable")


@pytest.mark.parametrize(
    "code", ["rate_limited", "unreachable", "context_too_long", "refused", "auth_failed", "bad_reply"]
)
async def test_a_provider_that_fails_ends_the_turn_with_its_code_and_the_next_turn_works(
    tmp_path: Path, stages: list[Stage], code: str
) -> None:
    stage = await set_up(tmp_path, ScriptStep(fail=code), ScriptStep(say="Better."))  # type: ignore[arg-type]
    stages.append(stage)
    session = await stage.session()

    events = await stage.play(session.id, "go")
    again = await stage.play(session.id, "again")

    assert (events[-1].outcome, events[-1].code) == ("failed", code)
    assert again[-1].outcome == "done"


async def test_an_interrupted_reply_is_kept_as_partial(tmp_path: Path, stages: list[Stage]) -> None:
    stage = await set_up(tmp_path, ScriptStep(say="One two three", cut_after=2), ScriptStep(say="Whole."))
    stages.append(stage)
    session = await stage.session()

    events = await stage.play(session.id, "go")

    said = [event for event in events if isinstance(event, ModelSaid)]
    assert [event.partial for event in said] == [True]
    assert "One" in text_of(said[0].parts)
    assert events[-1].outcome == "failed"


async def test_servers_that_reuse_call_ids_do_not_confuse_the_log(tmp_path: Path, stages: list[Stage]) -> None:
    async def ask(request: ModelRequest) -> AsyncIterator[Delta | StreamRestarted | ModelReply]:
        asked = sum(message.role == "assistant" for message in request.messages)
        calls = (ToolCall("call_0", "look"), ToolCall("call_0", "look")) if asked < 2 else ()
        yield ModelReply(parts=(Text("Hm."), *calls), model="m", finish="stop")

    stage = await set_up(tmp_path, ask=ask)
    stages.append(stage)
    session = await stage.session()

    events = await stage.play(session.id, "go")

    ids = [event.call_id for event in events if isinstance(event, ToolEnded)]
    assert len(ids) == len(set(ids)) == 4


async def test_many_sessions_run_at_once_and_each_gets_its_own_reply(tmp_path: Path, stages: list[Stage]) -> None:
    import asyncio

    stage = await set_up(tmp_path, model="echo")
    stages.append(stage)
    sessions = [await stage.session() for _ in range(30)]

    turns = await asyncio.gather(*(stage.play(session.id, f"number {n}") for n, session in enumerate(sessions)))

    for n, events in enumerate(turns):
        assert kinds(events) == ["TurnStarted", "UserSaid", "ModelSaid", "TurnEnded"]
        assert f"number {n}" in text_of(events[2].parts)
