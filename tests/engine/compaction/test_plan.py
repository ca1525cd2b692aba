"""What a compaction removes, for any log: no call without its result, the newest message whole, nothing twice, and smaller."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from holdfast.engine.compaction import plan
from holdfast.engine.compaction.plan import PlanMeasure
from holdfast.engine.context.context import Context
from holdfast.engine.context.tokens import estimate_messages
from holdfast.model.entry import Entry
from holdfast.model.event import (
    Compacted,
    Event,
    MessagePinned,
    ModelSaid,
    ProcessEnded,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    UserSaid,
)
from holdfast.model.message import Image, Message, Part, Text, ToolCall
from holdfast.model.provider import ModelRequest
from tests.engine.counting_model import dangling
from tests.fakes import anthropic_server, openai_server
from tests.providers.messages import anthropic_body, openai_body

PROVIDERS = [
    (openai_body, openai_server.complaint),
    (anthropic_body, anthropic_server.complaint),
]
lengths = st.sampled_from([1, 20, 200, 2_000, 9_000])


@st.composite
def logs(draw: st.DrawFn) -> list[Entry]:
    """Turns with calls, some of which have long results; the last one may still be open."""
    events: list[Event] = []
    turns = draw(st.integers(1, 8))
    for number in range(turns):
        turn_id = f"turn-{number}"
        events += [TurnStarted(turn_id=turn_id), UserSaid(turn_id=turn_id, parts=(Text("u" * draw(lengths)),))]
        for step in range(draw(st.integers(0, 3))):
            events += draw(steps(turn_id, f"{number}-{step}"))
        if number < turns - 1 or draw(st.booleans()):
            events.append(ModelSaid(turn_id=turn_id, parts=(Text("m" * draw(lengths)),)))
            events.append(TurnEnded(turn_id=turn_id, outcome="done"))
        if draw(st.booleans()):
            events.append(ProcessEnded(process_id="p", reason="exit code 1", command="make", tail="t" * draw(lengths)))
        if draw(st.booleans()):
            events.append(MessagePinned(seq=draw(st.integers(1, len(events)))))
    return [Entry(seq, 1, event) for seq, event in enumerate(events, 1)]


@st.composite
def steps(draw: st.DrawFn, turn_id: str, name: str) -> list[Event]:
    calls = [
        ToolCall(f"call-{name}-{n}", "look", f'{{"at": "{"a" * draw(lengths)}"}}')
        for n in range(draw(st.integers(1, 3)))
    ]
    parts: list[Part] = [Text("Let me see."), *calls]
    events: list[Event] = [ModelSaid(turn_id=turn_id, parts=tuple(parts))]
    events += [ToolStarted(turn_id=turn_id, call_id=call.id, name=call.name) for call in calls]
    for call in draw(st.permutations(calls)):
        result = draw(st.sampled_from([Text("r" * draw(lengths)), Image("https://example.org/a.png", "image/png")]))
        events.append(ToolEnded(turn_id=turn_id, call_id=call.id, outcome="ok", parts=(result,)))
        if draw(st.integers(0, 3)) == 0:
            events.append(ProcessEnded(process_id="p", reason="exit code 1", command="make"))
    return events


measures = st.builds(
    PlanMeasure,
    frame=st.integers(0, 1_000),
    target=st.integers(200, 8_000),
    window=st.sampled_from([2_000, 8_000]),
    keep_last=st.integers(0, 10),
    manual=st.booleans(),
    must_shrink=st.booleans(),
)


def newest_user(context: Context) -> Message:
    return next(message for message in reversed(context.messages) if message.text.startswith("u"))


@pytest.mark.slow
@settings(max_examples=300)
@given(entries=logs(), first=measures, second=measures)
def test_promise_18_any_compaction_of_any_log_leaves_a_valid_context(
    entries: list[Entry], first: PlanMeasure, second: PlanMeasure
) -> None:
    context = Context(entries)
    for number, measure in enumerate((first, second), 1):
        found = plan.plan(context, measure)
        if found is None:
            continue
        before = context.estimate_messages()
        event = Compacted(
            epoch=number,
            upto_seq=found.upto_seq,
            summary="They talked.",
            how="summary",
            pinned=found.pinned,
            thinned_upto=found.thinned_upto,
            thinned_to=found.thinned_to,
        )
        context.add(Entry(len(entries) + number, 1, event))

        shown = [message.seq for message in context.view if not message.text.startswith("[Summary")]
        assert not dangling(tuple(context.view))
        for render, complaint in PROVIDERS:
            request = ModelRequest(model="m", system="Be brief.", messages=context.visible_to("turn-next"))
            assert complaint(render(request)) is None, "every provider accepts it"
        assert newest_user(context) in context.view, "the newest message is whole"
        assert shown == sorted(shown), "in order"
        assert len({id(message) for message in context.view}) == len(context.view), "and nothing twice"
        assert {message.seq for message in context.messages if message.seq > found.upto_seq} <= set(shown)
        told = {message.seq for message in found.gone} | set(shown)
        if number == 1:
            assert {message.seq for message in context.messages} <= told, "each is shown or summarized"
        assert estimate_messages(context.view) < before


@given(entries=logs(), measure=measures)
def test_a_plan_is_always_the_same(entries: list[Entry], measure: PlanMeasure) -> None:
    assert plan.plan(Context(entries), measure) == plan.plan(Context(entries), measure)


@given(entries=logs())
def test_a_context_is_the_same_whether_updated_or_loaded(entries: list[Entry]) -> None:
    grown = Context()
    for entry in entries:
        grown.add(entry)
        grown.estimate_messages()
        grown.estimate_size(10)
    read = Context(entries)

    assert list(grown.view) == list(read.view)
    assert grown.estimate_messages() == read.estimate_messages() == estimate_messages(read.view)
    assert grown.estimate_size(10) == read.estimate_size(10)


def conversation(*lengths_of_turns: int) -> Context:
    events: list[Event] = []
    for number, length in enumerate(lengths_of_turns):
        events.append(UserSaid(turn_id=f"turn-{number}", parts=(Text("u" * length),)))
        events.append(ModelSaid(turn_id=f"turn-{number}", parts=(Text("m" * length),)))
    return Context(Entry(seq, 1, event) for seq, event in enumerate(events, 1))


def test_the_last_messages_are_kept_and_fewer_if_they_do_not_fit() -> None:
    even = plan.plan(conversation(*[300] * 20), PlanMeasure(0, 2_000, 4_000, 8))
    tight = plan.plan(conversation(*[300] * 20), PlanMeasure(0, 1_000, 4_000, 8))

    assert even is not None
    assert tight is not None
    assert even.upto_seq == 32
    assert 32 < tight.upto_seq <= 38


def test_tool_results_are_truncated_before_anything_is_summarized() -> None:
    events: list[Event] = []
    for number in range(20):
        events.append(UserSaid(turn_id=f"turn-{number}", parts=(Text("Look."),)))
        events.append(ModelSaid(turn_id=f"turn-{number}", parts=(ToolCall(f"c{number}", "look"),)))
        events.append(
            ToolEnded(turn_id=f"turn-{number}", call_id=f"c{number}", outcome="ok", parts=(Text("r" * 6_000),))
        )
        events.append(ModelSaid(turn_id=f"turn-{number}", parts=(Text("I see."),)))
    context = Context(Entry(seq, 1, event) for seq, event in enumerate(events, 1))

    found = plan.plan(context, PlanMeasure(0, 12_000, 60_000, 8))

    assert found is not None
    assert (found.gone, found.upto_seq, found.thinned_upto) == ((), 0, 72)
    assert len(plan.after(context, found, "")) == len(events), "all messages are still there"


def test_calls_without_results_yet_are_kept() -> None:
    events: list[Event] = [
        *(UserSaid(turn_id="t", parts=(Text("u" * 3_000),)) for _ in range(5)),
        ModelSaid(turn_id="t", parts=(ToolCall("theirs", "look", "a" * 30_000),)),
    ]
    context = Context(Entry(seq, 1, event) for seq, event in enumerate(events, 1))

    found = plan.plan(context, PlanMeasure(0, 500, 2_000, 0, manual=True))

    assert found is None or found.upto_seq < 6


def test_pins_that_would_fill_the_window_are_summarized_oldest_first() -> None:
    context = conversation(*[900] * 30)
    for seq in (1, 3, 5):
        context.add(Entry(100 + seq, 1, MessagePinned(seq=seq)))

    found = plan.plan(context, PlanMeasure(0, 2_000, 4_000, 4))

    assert found is not None
    assert found.pinned == (3, 5)
    assert 1 in {message.seq for message in found.gone}


def test_a_message_that_was_pinned_after_a_compaction_stays_in_view_when_results_are_truncated() -> None:
    events: list[Event] = [
        *turn("turn-1", "PINNED RULE", results=0),
        *turn("turn-2", "two", results=0),
        Compacted(epoch=1, upto_seq=8, summary="S", how="summary"),
        MessagePinned(seq=2),
        *turn("turn-3", "three", results=8),
    ]
    context = Context(Entry(seq, 1, event) for seq, event in enumerate(events, 1))

    planned = plan.plan(context, PlanMeasure(frame=10, target=2_500, window=8_000, keep_last=2))

    assert planned is not None and planned.thinned_upto
    assert planned.pinned == (2,)


def turn(turn_id: str, text: str, *, results: int) -> list[Event]:
    calls = [(f"{turn_id}-{number}", Text("r" * 3_000)) for number in range(results)]
    return [
        TurnStarted(turn_id=turn_id),
        UserSaid(turn_id=turn_id, parts=(Text(text),)),
        *(
            event
            for call_id, result in calls
            for event in (
                ModelSaid(turn_id=turn_id, parts=(ToolCall(call_id, "look", "{}"),)),
                ToolEnded(turn_id=turn_id, call_id=call_id, outcome="ok", parts=(result,)),
            )
        ),
        ModelSaid(turn_id=turn_id, parts=(Text("done"),)),
        TurnEnded(turn_id=turn_id, outcome="done"),
    ]
