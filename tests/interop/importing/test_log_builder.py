"""Any source gives a well-formed log that contains every message. (promise 6)"""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.interop.importing.facts import (
    Fact,
    ImportedCompaction,
    ImportedInput,
    ImportedReply,
    ImportedResult,
    ImportedUndo,
    ImportedWithdrawal,
    RepeatedLines,
    SkippedLines,
)
from holdfast.interop.importing.log_builder import LogBuilder
from holdfast.model.entry import Entry
from holdfast.model.event import Compacted, Event, ModelSaid, Rewound, ToolEnded, TurnEnded, UserSaid
from holdfast.model.message import Part, Text, ToolCall
from holdfast.model.session import standing
from tests.engine.well_formed import assert_well_formed

CALLS = st.sampled_from(["a", "b", "c", ""])
WORDS = st.text(st.characters(exclude_categories=()), max_size=5).map(Text)
AT = st.integers(0, 2**40)
HEARD = st.builds(ImportedInput, at=AT, parts=st.tuples(WORDS), name=st.sampled_from(["", "system"]))
PARTS: st.SearchStrategy[Part] = WORDS | CALLS.map(lambda call: ToolCall(call, "t"))
REPLIED = st.builds(ImportedReply, at=AT, parts=st.lists(PARTS, max_size=4).map(tuple), partial=st.booleans())
RETURNED = st.builds(ImportedResult, at=AT, call_id=CALLS, parts=st.tuples(WORDS))
SAID = HEARD | REPLIED | RETURNED
NUMBER = st.integers(-1, 12)
FACT = (
    SAID
    | st.builds(
        ImportedCompaction,
        at=AT,
        summary=st.text(max_size=3),
        pinned=st.lists(NUMBER, max_size=3).map(tuple),
        upto=NUMBER,
    )
    | st.builds(ImportedWithdrawal, at=AT, said=st.lists(SAID, min_size=1, max_size=3).map(tuple))
    | st.builds(ImportedUndo, at=AT, first=NUMBER)
    | st.just(RepeatedLines())
    | st.just(SkippedLines(why="x"))
)
FACTS = st.lists(FACT, max_size=20)


def woven(facts: list[Fact]) -> tuple[LogBuilder, list[Event]]:
    weaver = LogBuilder("test:1")
    events = [event for fact in facts for _, event in weaver.add_fact(fact)]
    return weaver, events


def closed(facts: list[Fact]) -> tuple[LogBuilder, list[Event]]:
    weaver, events = woven(facts)
    return weaver, events + [event for _, event in weaver.close()]


@given(FACTS)
def test_any_facts_give_a_well_formed_log(facts: list[Fact]) -> None:
    weaver, events = closed(facts)

    assert_well_formed(events)
    assert weaver.seq == len(events)


@given(FACTS)
def test_every_message_is_in_the_log(facts: list[Fact]) -> None:
    _, events = closed(facts)

    told = [said for fact in facts for said in (fact.said if isinstance(fact, ImportedWithdrawal) else (fact,))]
    words = [part for said in told for part in getattr(said, "parts", ()) if isinstance(part, Text)]
    logged = [part for event in events for part in getattr(event, "parts", ()) if isinstance(part, Text)]
    for part in words:
        assert part in logged
        logged.remove(part)


@given(FACTS, FACTS)
def test_later_facts_change_no_earlier_event(facts: list[Fact], more: list[Fact]) -> None:
    weaver, events = woven(facts)
    longer, all_events = woven(facts + more)

    assert all_events[: len(events)] == events
    assert longer.messages >= weaver.messages


@given(FACTS)
def test_a_compaction_never_cuts_between_a_call_and_its_result(facts: list[Fact]) -> None:
    _, events = closed(facts)

    for event in events:
        if isinstance(event, Compacted):
            kept = [later for seq, later in enumerate(events, 1) if seq > event.upto_seq]
            assert_results_have_calls(kept)


def assert_results_have_calls(events: list[Event]) -> None:
    made: list[str] = []
    for event in events:
        if isinstance(event, ModelSaid):
            made += [part.id for part in event.parts if isinstance(part, ToolCall)]
        elif isinstance(event, ToolEnded):
            assert event.call_id in made


@given(FACTS)
def test_the_remaining_messages_are_well_formed(facts: list[Fact]) -> None:
    _, events = closed(facts)
    entries = [Entry(seq, 0, event) for seq, event in enumerate(events, 1)]

    # What was taken back is not there, so the event that took it back must not be applied again.
    left = [entry.event for entry in standing(entries) if not isinstance(entry.event, Rewound)]
    assert_well_formed(left)


def test_a_result_without_its_call_is_kept_as_text() -> None:
    _, events = closed(
        [ImportedInput(parts=(Text("hi"),)), ImportedResult(call_id="lost", parts=(Text("42"),), name="sum")]
    )

    said = [event for event in events if isinstance(event, UserSaid)]
    assert said[1].name == "tool"
    assert "lost" in said[1].parts[0].text and said[1].parts[1] == Text("42")  # type: ignore[union-attr]


def test_input_during_a_call_does_not_separate_it_from_its_result() -> None:
    call = ToolCall("a", "t")
    facts: list[Fact] = [
        ImportedInput(parts=(Text("go"),)),
        ImportedReply(parts=(call,)),
        ImportedInput(parts=(Text("faster"),)),
        ImportedResult(call_id="a", parts=(Text("ok"),)),
        ImportedReply(parts=(Text("done"),)),
    ]

    _, events = closed(facts)

    assert [event.outcome for event in events if isinstance(event, ToolEnded)] == ["ok"]
    assert [event.outcome for event in events if isinstance(event, TurnEnded)] == ["done"]


def test_undone_messages_are_not_in_the_context() -> None:
    facts: list[Fact] = [
        ImportedInput(parts=(Text("one"),)),
        ImportedReply(parts=(Text("1"),)),
        ImportedWithdrawal(said=(ImportedInput(parts=(Text("two"),)), ImportedReply(parts=(Text("2"),)))),
        ImportedInput(parts=(Text("three"),)),
    ]

    _, events = closed(facts)
    entries = [Entry(seq, 0, event) for seq, event in enumerate(events, 1)]

    assert len([event for event in events if isinstance(event, Rewound)]) == 1
    words = [event.parts for event in (entry.event for entry in standing(entries)) if isinstance(event, UserSaid)]
    assert words == [(Text("one"),), (Text("three"),)]


def test_an_endless_turn_is_split_so_that_it_can_be_committed_in_batches() -> None:
    step: list[Fact] = [
        ImportedReply(parts=(ToolCall("a", "t"),)),
        ImportedResult(call_id="a", parts=(Text("x" * 1_000_000),)),
    ]
    facts: list[Fact] = [ImportedInput(parts=(Text("go"),)), *step * 12]

    _, events = closed(facts)

    assert_well_formed(events)
    assert len([event for event in events if isinstance(event, TurnEnded)]) == 3
    assert [event.outcome for event in events if isinstance(event, ToolEnded)] == ["ok"] * 12
