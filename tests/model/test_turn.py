import itertools
from functools import reduce

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.entry import Entry
from holdfast.model.event import (
    ApprovalAsked,
    Ended,
    Event,
    ModelSaid,
    Pinned,
    Titled,
    ToolEnded,
    ToolStarted,
    TurnEnded,
    TurnStarted,
    Usage,
    UserSaid,
)
from holdfast.model.message import Text, ToolCall
from holdfast.model.turn import Turn, add_usage, close, closing_events, fold_turn, turn_of
from tests.contract.logs import is_well_formed

CALL_A, CALL_B = ToolCall("a", "terminal"), ToolCall("b", "read_file")
STARTED = TurnStarted(turn_id="turn-1")
SAID = UserSaid(turn_id="turn-1", parts=(Text("go"),))
ASKED = ModelSaid(turn_id="turn-1", parts=(Text("looking"), CALL_A, CALL_B))
ANSWERED = ModelSaid(turn_id="turn-1", parts=(Text("done"),))
HALF = ModelSaid(turn_id="turn-1", parts=(Text("do"),), partial=True)
DONE = TurnEnded(turn_id="turn-1", outcome="done")


def began(call: ToolCall) -> ToolStarted:
    return ToolStarted(turn_id="turn-1", call_id=call.id, name=call.name)


def finished(call: ToolCall) -> ToolEnded:
    return ToolEnded(turn_id="turn-1", call_id=call.id, outcome="ok")


def log_of(events: list[Event]) -> list[Entry]:
    return [Entry(seq, seq, event) for seq, event in enumerate(events, start=1)]


BOTH = (CALL_A, CALL_B)
TABLE: list[tuple[str, list[Event], Turn]] = [
    ("nothing yet", [], Turn()),
    ("a turn that begins", [STARTED], Turn(id="turn-1")),
    ("words", [STARTED, SAID], Turn(id="turn-1", owes_reply=True)),
    ("an answer", [STARTED, SAID, ANSWERED], Turn(id="turn-1", steps=1)),
    ("half an answer", [STARTED, SAID, HALF], Turn(id="turn-1", steps=1, owes_reply=True)),
    ("half an answer to nothing", [STARTED, HALF], Turn(id="turn-1", steps=1)),
    ("calls", [STARTED, SAID, ASKED], Turn(id="turn-1", open_calls=BOTH, steps=1)),
    (
        "a call that may have acted",
        [STARTED, SAID, ASKED, began(CALL_B)],
        Turn(id="turn-1", open_calls=BOTH, started=frozenset("b"), steps=1, tool_calls=1),
    ),
    (
        "one call back, the other not",
        [STARTED, SAID, ASKED, began(CALL_B), finished(CALL_B)],
        Turn(id="turn-1", open_calls=(CALL_A,), steps=1, owes_reply=True, tool_calls=1),
    ),
    (
        "both calls back",
        [STARTED, SAID, ASKED, began(CALL_A), began(CALL_B), finished(CALL_B), finished(CALL_A)],
        Turn(id="turn-1", steps=1, owes_reply=True, tool_calls=2),
    ),
    (
        "words while a call runs",
        [STARTED, SAID, ASKED, began(CALL_A), SAID],
        Turn(id="turn-1", open_calls=BOTH, started=frozenset("a"), steps=1, owes_reply=True, tool_calls=1),
    ),
    (
        "what is no part of a turn",
        [STARTED, Titled(title="x"), SAID, Pinned(), ApprovalAsked(turn_id="turn-1", call_id="a", question="?")],
        Turn(id="turn-1", owes_reply=True),
    ),
    ("the end of a turn", [STARTED, SAID, ANSWERED, DONE], Turn()),
    (
        "the end of a session in mid-turn",
        [STARTED, SAID, ASKED, Ended(reason="reaped")],
        Turn(id="turn-1", open_calls=BOTH, steps=1),
    ),
    (
        "a second turn",
        [STARTED, SAID, ANSWERED, DONE, TurnStarted(turn_id="turn-2"), SAID],
        Turn(id="turn-2", owes_reply=True),
    ),
]


@pytest.mark.parametrize(("events", "turn"), [row[1:] for row in TABLE], ids=[row[0] for row in TABLE])
def test_the_state_of_a_turn_after(events: list[Event], turn: Turn) -> None:
    assert turn_of(log_of(events)) == turn


def test_a_call_that_never_started_is_closed_as_not_run_and_one_that_did_as_unknown() -> None:
    first, second, ended = closing_events(log_of([STARTED, SAID, ASKED, began(CALL_A)]))

    assert isinstance(first, ToolEnded)
    assert (first.call_id, first.name, first.outcome) == ("a", "terminal", "unknown")
    assert "unknown" in first.parts[0].text
    assert isinstance(second, ToolEnded)
    assert (second.call_id, second.name, second.outcome) == ("b", "read_file", "failed")
    assert "Not run" in second.parts[0].text
    assert isinstance(ended, TurnEnded)
    assert (ended.turn_id, ended.outcome) == ("turn-1", "cancelled")


def test_a_session_without_an_open_turn_needs_no_closing_events() -> None:
    assert closing_events(log_of([])) == []
    assert closing_events(log_of([STARTED, SAID, ANSWERED, DONE])) == []


def test_a_turn_is_closed_with_the_given_texts() -> None:
    turn = turn_of(log_of([STARTED, SAID]))

    assert close(turn, outcome="failed", reason="no answer", code="unreachable") == [
        TurnEnded(turn_id="turn-1", outcome="failed", reason="no answer", code="unreachable")
    ]
    assert close(Turn(), outcome="failed", reason="no answer") == []


@st.composite
def whole_turns(draw: st.DrawFn, turn_id: str) -> list[Event]:
    """A turn as the engine writes it: parallel calls, denied ones, repeated ids, messages in between."""
    events: list[Event] = [TurnStarted(turn_id=turn_id), UserSaid(turn_id=turn_id, parts=(Text("go"),))]
    for _ in range(draw(st.integers(0, 3))):
        calls = [ToolCall(f"call_{number}", "terminal") for number in range(draw(st.integers(0, 3)))]
        events.append(ModelSaid(turn_id=turn_id, parts=(Text("…"), *calls), partial=not calls and draw(st.booleans())))
        begins = [call for call in calls if draw(st.booleans())]
        acts: list[Event] = [ToolStarted(turn_id=turn_id, call_id=call.id, name=call.name) for call in begins]
        acts += [ToolEnded(turn_id=turn_id, call_id=call.id, outcome="ok") for call in draw(st.permutations(calls))]
        if draw(st.booleans()):
            beside = [Titled(title="x"), Pinned(), UserSaid(turn_id=turn_id, parts=(Text("faster"),))]
            acts.insert(draw(st.integers(0, len(acts))), draw(st.sampled_from(beside)))
        events += acts
    return [*events, TurnEnded(turn_id=turn_id, outcome="done")]


@st.composite
def prefixes(draw: st.DrawFn) -> list[Entry]:
    """Whatever a crash could leave of a log."""
    events = [event for number in range(draw(st.integers(1, 3))) for event in draw(whole_turns(f"turn-{number}"))]
    return log_of(events[: draw(st.integers(0, len(events)))])


@given(prefixes())
def test_closing_an_interrupted_turn_always_gives_a_well_formed_log(entries: list[Entry]) -> None:
    ends = closing_events(entries)
    closed = log_of([*(entry.event for entry in entries), *ends])

    assert is_well_formed(closed)
    assert turn_of(closed) == Turn()
    assert closing_events(closed) == [], "nothing is closed twice"


@given(prefixes())
def test_entries_before_the_newest_turn_do_not_matter(entries: list[Entry]) -> None:
    turn = Turn()
    for entry in entries:
        turn = fold_turn(turn, entry.event)

    assert turn_of(entries) == turn


def test_calls_of_unknown_cost_are_counted_whatever_the_order() -> None:
    unknown, known = Usage(tokens_in=1), Usage(tokens_in=1, cost=0.5)
    for calls in itertools.permutations([unknown, unknown, known]):
        total = reduce(add_usage, calls, Usage())

        assert (total.cost, total.unpriced, total.tokens_in) == (0.5, 2, 3)
