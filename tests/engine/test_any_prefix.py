"""Promise 6: whatever part of a log a crash leaves, the next request is one that every provider accepts."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.context.context import Context
from holdfast.engine.turn.recovery import WorkerDeath, plan
from holdfast.model.entry import Entry
from holdfast.model.event import Event, ModelSaid, ToolEnded, ToolStarted, TurnEnded, TurnStarted, UserSaid
from holdfast.model.message import Image, Part, Reasoning, Text, ToolCall
from holdfast.model.provider import ModelRequest
from holdfast.model.turn import fold_turn, turn_of
from holdfast.store.repos.log import ReplyDraft
from tests.engine.well_formed import assert_well_formed
from tests.fakes import anthropic_server, openai_server
from tests.providers.messages import anthropic_body, openai_body

PROVIDERS = [
    pytest.param(openai_body, openai_server.complaint, id="openai"),
    pytest.param(anthropic_body, anthropic_server.complaint, id="anthropic"),
]
words = st.text(max_size=12)  # any characters at all, lone surrogates and NUL included


@st.composite
def logs(draw: st.DrawFn) -> list[Event]:
    """A log as the engine writes it, turn by turn, with everything that can happen in one."""
    events: list[Event] = []
    for turn in range(draw(st.integers(1, 3))):
        turn_id = f"turn-{turn}"
        events += [TurnStarted(turn_id=turn_id), UserSaid(turn_id=turn_id, parts=(Text(draw(words)),))]
        for step in range(draw(st.integers(0, 3))):
            events += draw(steps(turn_id, f"{turn}-{step}"))
        if draw(st.booleans()):
            events.append(ModelSaid(turn_id=turn_id, parts=(Text(draw(words)),), partial=True))
        else:
            events.append(ModelSaid(turn_id=turn_id, parts=tuple(draw(st.lists(thoughts | spoken, max_size=2)))))
        events.append(TurnEnded(turn_id=turn_id, outcome="done"))
    return events


spoken = words.map(Text)
thoughts = st.builds(
    Reasoning, words, st.sampled_from(["", "openai", "anthropic"]), st.dictionaries(st.just("signature"), words)
)
results = st.lists(spoken | st.just(Image("https://example.org/a.png", "image/png")), max_size=2).map(tuple)


@st.composite
def steps(draw: st.DrawFn, turn_id: str, place: str) -> list[Event]:
    names = st.sampled_from(["mail", "look", "no such tool", ""])
    calls = [
        ToolCall(f"call-{place}-{n}", draw(names) or "mail", draw(words | st.just('{"to": "bo"}')))
        for n in range(draw(st.integers(1, 3)))
    ]
    parts: list[Part] = [*draw(st.lists(thoughts | spoken, max_size=2)), *calls]
    events: list[Event] = [ModelSaid(turn_id=turn_id, parts=tuple(parts))]
    events += [ToolStarted(turn_id=turn_id, call_id=call.id, name=call.name) for call in calls]
    for call in draw(st.permutations(calls)):
        outcome = draw(st.sampled_from(["ok", "failed", "denied", "unknown"]))
        events.append(ToolEnded(turn_id=turn_id, call_id=call.id, outcome=outcome, parts=draw(results)))
    if draw(st.booleans()):
        events.append(UserSaid(turn_id=turn_id, parts=(Text(draw(words)),), input_id="turn-steer"))
    return events


@pytest.mark.parametrize(("render", "complaint"), PROVIDERS)
@given(events=logs(), cut=st.integers(0, 10_000), draft=words, policy=st.sampled_from(["continue", "close"]))
def test_promise_6_any_prefix_of_any_log_is_recovered_into_a_request_the_provider_accepts(
    render: Callable[[Any], dict[str, Any]],
    complaint: Callable[[Any], str | None],
    events: list[Event],
    cut: int,
    draft: str,
    policy: Any,
) -> None:
    prefix = events[: 1 + cut % len(events)]
    entries = [Entry(seq, 1, event) for seq, event in enumerate(prefix, 1)]
    turn = turn_of(entries)
    if turn.id is not None:
        kept = ReplyDraft(turn.id, draft, 1) if draft and not turn.open_calls else None
        for event in plan(
            entries, turn, kept, policy=policy, death=WorkerDeath("killed"), repeatable=lambda name: name == "look"
        ):
            entries.append(Entry(len(entries) + 1, 1, event))
            turn = fold_turn(turn, event)
        for call in turn.open_calls:
            entries.append(Entry(len(entries) + 1, 1, ToolEnded(turn_id="x", call_id=call.id, outcome="ok")))
    if turn.id is None:
        assert_well_formed([entry.event for entry in entries])
        entries.append(Entry(len(entries) + 1, 1, UserSaid(turn_id="turn-next", parts=(Text("go on"),))))

    visible = Context(entries).visible_to(turn.id or "turn-next")
    request = ModelRequest(model="m", system="Be brief.", messages=visible)

    assert complaint(render(request)) is None
