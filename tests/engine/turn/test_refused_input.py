"""Input that the provider refuses for its content: it stays in the log, leaves the context, and the session continues."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest

from holdfast.engine.admission.client_request import ClientRequest
from holdfast.engine.admission.history_match import ClientMessage
from holdfast.engine.context.context import Context
from holdfast.model.entry import Entry
from holdfast.model.errors import AuthFailed, ContextTooLong, ProviderFailed, Refused, Unreachable
from holdfast.model.event import (
    ClientTool,
    Event,
    InputRefused,
    ModelSaid,
    RequestOptions,
    ToolEnded,
    TurnEnded,
    UserSaid,
)
from holdfast.model.ids import SESSION, TURN
from holdfast.model.message import Message, Text, ToolCall, ToolResult, text_of
from holdfast.model.provider import Delta, ModelReply, ModelRequest, StreamRestarted, TextDelta
from tests.engine.stage import Stage, set_up

BAD = "POISON"
REASON = "images of this kind are not accepted"


class Picky:
    """A model that refuses every request with a forbidden word, like a provider that checks the whole context."""

    def __init__(self, error: ProviderFailed) -> None:
        self.error = error
        self.requests: list[ModelRequest] = []
        self.calls: list[tuple[ToolCall, ...]] = []
        """Calls that it makes in its next replies."""

    async def ask(self, request: ModelRequest) -> AsyncIterator[Delta | StreamRestarted | ModelReply]:
        self.requests.append(request)
        if any(BAD in message.text for message in request.messages):
            raise self.error
        calls = self.calls.pop(0) if self.calls else ()
        parts = calls or (Text("Fine."),)
        yield ModelReply(parts=parts, model="play", finish="tool_calls" if calls else "stop")

    @property
    def seen(self) -> list[str]:
        """What the newest request showed."""
        return [message.text for message in self.requests[-1].messages]


def refusing() -> Picky:
    return Picky(Refused(REASON, blames_input=True))


def ending(events: list[Event]) -> TurnEnded:
    assert isinstance(events[-1], TurnEnded)
    return events[-1]


def set_aside(events: list[Event]) -> list[InputRefused]:
    return [event for event in events if isinstance(event, InputRefused)]


async def test_refused_input_leaves_the_context_and_the_next_turn_works(tmp_path: Path) -> None:
    model = refusing()
    stage = await set_up(tmp_path, ask=model.ask)
    session = await stage.session()
    await stage.play(session.id, "hello")

    refused = await stage.play(session.id, f"look at this {BAD}")
    after = await stage.play(session.id, "never mind")

    assert (ending(refused).outcome, ending(refused).code) == ("failed", "refused")
    assert REASON in ending(refused).reason
    assert [event.reason for event in set_aside(refused)] == [REASON]
    assert ending(after).outcome == "done"
    assert model.seen == ["hello", "Fine.", "never mind"]


async def test_input_of_an_earlier_turn_that_was_never_judged_does_not_block_the_session(tmp_path: Path) -> None:
    model = refusing()
    stage = await set_up(tmp_path, ask=model.ask)
    session = await stage.session()
    model.error = Unreachable("no connection")
    unjudged = await stage.play(session.id, f"look at this {BAD}")
    model.error = Refused(REASON, blames_input=True)

    refused = await stage.play(session.id, "are you there?")
    after = await stage.play(session.id, "hello")

    assert ending(unjudged).code == "unreachable"
    assert ending(refused).code == "refused"
    assert ending(after).outcome == "done"
    assert model.seen == ["hello"]


async def test_refused_input_stays_in_the_log_and_is_marked(tmp_path: Path) -> None:
    stage = await set_up(tmp_path, ask=refusing().ask)
    session = await stage.session()
    await stage.play(session.id, f"look at this {BAD}")

    _, entries = await stage.engine.read(session.id)

    [words] = [entry for entry in entries if isinstance(entry.event, UserSaid)]
    [mark] = [entry.event for entry in entries if isinstance(entry.event, InputRefused)]
    assert BAD in text_of(words.event.parts)
    assert mark.seqs == (words.seq,)
    assert mark.code == "refused"


async def test_refused_input_stays_excluded_for_the_next_worker(tmp_path: Path) -> None:
    first = await set_up(tmp_path, ask=refusing().ask)
    session = await first.session()
    await first.play(session.id, f"look at this {BAD}")
    await first.engine.close()
    model = refusing()
    second = await set_up(tmp_path, ask=model.ask)

    after = await second.play(session.id, "hello")

    assert ending(after).outcome == "done"
    assert model.seen == ["hello"]


@pytest.mark.parametrize(
    "error",
    [Refused("no such model"), AuthFailed("the key is wrong"), ContextTooLong("too long")],
    ids=lambda e: e.code,
)
async def test_input_stays_when_the_configuration_or_the_size_is_the_cause(
    tmp_path: Path, error: ProviderFailed
) -> None:
    model = Picky(error)
    stage = await set_up(tmp_path, ask=model.ask)
    session = await stage.session()

    failed = await stage.play(session.id, f"my words {BAD}")
    await stage.play(session.id, "and more")

    assert ending(failed).outcome == "failed"
    assert not set_aside(await stage.log(session.id))
    assert model.seen[0] == f"my words {BAD}"


async def test_a_refused_result_of_our_tool_is_replaced_and_the_turn_continues(tmp_path: Path) -> None:
    model = refusing()
    stage = await set_up(tmp_path, ask=model.ask)
    stage.reader.says = f"a picture {BAD}"
    session = await stage.session()
    model.calls = [(ToolCall("call-1", "look"),)]

    events = await stage.play(session.id, "look around")

    assert ending(events).outcome == "done"
    assert len(set_aside(events)) == 1
    assert model.seen[0] == "look around", "input that was accepted before is not the cause"
    [result] = [message for message in model.requests[-1].messages if message.role == "tool"]
    assert REASON in result.text
    assert BAD not in result.text


async def test_a_reason_that_quotes_the_refused_result_does_not_return_to_the_context(tmp_path: Path) -> None:
    model = Picky(Refused(f"not accepted: '{BAD}'", blames_input=True))
    stage = await set_up(tmp_path, ask=model.ask)
    stage.reader.says = f"some text with {BAD} in it"
    session = await stage.session()
    model.calls = [(ToolCall("call-1", "look"),)]

    events = await stage.play(session.id, "look around")
    after = await stage.play(session.id, "and now?")

    assert (ending(events).outcome, ending(after).outcome) == ("done", "done")
    assert BAD in set_aside(events)[0].reason
    assert model.seen[-1] == "and now?"


async def test_a_refused_result_of_the_clients_tool_fails_its_turn_only(tmp_path: Path) -> None:
    model = refusing()
    stage = await set_up(tmp_path, ask=model.ask)
    model.calls = [(ToolCall("call-1", "weather"),)]
    terms = RequestOptions(tools=(ClientTool(name="weather"),))
    await send(stage, ClientMessage(role="user", parts=(Text("weather?"),)), terms)

    refused = await send(stage, ClientMessage(role="tool", parts=(Text(BAD),), call_id="call-1"), terms)
    after = await send(stage, ClientMessage(role="user", parts=(Text("never mind"),)), terms)

    assert ending(refused).outcome == "failed"
    assert REASON in ending(refused).reason
    assert ending(after).outcome == "done"
    assert [message.role for message in model.requests[-1].messages] == ["user", "assistant", "tool", "user"]
    assert BAD not in "".join(model.seen)


async def send(stage: Stage, given: ClientMessage, terms: RequestOptions) -> list[Event]:
    ids = stage.engine.services.ids
    arrival = ClientRequest(
        turn_id=ids.make(TURN),
        new_id=ids.make(SESSION),
        messages=(given,),
        caller="api:",
        channel="key:refused",
        default_model="play",
        terms=terms,
    )
    received = await stage.engine.submit(arrival, stream="live")
    try:
        return [item.event async for item in received.follow() if isinstance(item, Entry)]
    finally:
        received.close()


async def test_input_that_was_accepted_before_is_not_the_cause(tmp_path: Path) -> None:
    """Something else in the context is the cause: removing the input would not help."""

    class Moody(Picky):
        async def ask(self, request: ModelRequest) -> AsyncIterator[Delta | StreamRestarted | ModelReply]:
            if len(self.requests) == 1:
                self.requests.append(request)
                raise self.error
            async for item in super().ask(request):
                yield item

    model = Moody(Refused(REASON, blames_input=True))
    stage = await set_up(tmp_path, ask=model.ask)
    session = await stage.session()
    await stage.play(session.id, "go on")

    failed = await stage.play(session.id, "go on")
    await stage.play(session.id, "and now?")

    assert ending(failed).outcome == "failed"
    assert not set_aside(failed)
    assert model.seen == ["go on", "Fine.", "go on", "and now?"]


async def test_a_refusal_during_a_reply_keeps_the_input(tmp_path: Path) -> None:
    """The provider had accepted the input and broke off its own reply."""

    async def breaks_off(request: ModelRequest) -> AsyncIterator[Delta | StreamRestarted | ModelReply]:
        yield TextDelta("Once upon")
        raise Refused(REASON, blames_input=True)

    stage = await set_up(tmp_path, ask=breaks_off)
    session = await stage.session()

    failed = await stage.play(session.id, "a tale, please")

    assert ending(failed).outcome == "failed"
    assert not set_aside(failed)


def test_the_context_with_a_refusal_is_the_same_loaded_or_updated() -> None:
    events: list[Event] = [
        UserSaid(turn_id="t1", parts=(Text("one"),)),
        ModelSaid(turn_id="t1", parts=(ToolCall("c", "look"),), model="m"),
        ToolEnded(turn_id="t1", call_id="c", outcome="ok", parts=(Text("bad result"),)),
        UserSaid(turn_id="t1", parts=(Text("bad words"),)),
        InputRefused(turn_id="t1", seqs=(3, 4), reason="no"),
        UserSaid(turn_id="t2", parts=(Text("two"),)),
    ]

    context = Context(Entry(seq, 0, event) for seq, event in enumerate(events, 1))

    assert [message.role for message in context.messages] == ["user", "assistant", "tool", "user"]
    assert list(context.view) == list(context.messages)
    assert context.newest == 3
    assert refused_result(context.messages[2]) == "failed"


def refused_result(message: Message) -> str:
    [part] = message.parts
    assert isinstance(part, ToolResult)
    return part.outcome
