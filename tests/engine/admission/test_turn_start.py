"""The start of a turn: every call has exactly one result, whatever was sent."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.admission.turn_start import settle_calls
from holdfast.model.event import Event, ModelSaid, ToolEnded, TurnEnded, TurnStarted, UserSaid
from holdfast.model.message import Text, ToolCall, text_of
from tests.engine.well_formed import assert_well_formed

CALLS = [ToolCall(f"c{n}", "f") for n in range(3)]


def before() -> list[Event]:
    """A turn that ended with three calls for the client."""
    return [
        TurnStarted(turn_id="t0"),
        UserSaid(turn_id="t0", parts=(Text("go"),)),
        ModelSaid(turn_id="t0", parts=tuple(CALLS)),
        TurnEnded(turn_id="t0", outcome="done", awaiting=tuple(call.id for call in CALLS)),
    ]


def result(call_id: str, turn_id: str = "t1") -> ToolEnded:
    return ToolEnded(turn_id=turn_id, call_id=call_id, outcome="ok", parts=(Text(f"result of {call_id}"),))


def test_a_result_that_arrives_too_late_becomes_a_message() -> None:
    settled = settle_calls([TurnStarted(turn_id="t1"), result("c9")], [])

    assert isinstance(settled[1], UserSaid)
    assert "result of c9" in text_of(settled[1].parts)


def test_a_second_result_of_a_call_becomes_a_message_too() -> None:
    settled = settle_calls([TurnStarted(turn_id="t1"), result("c0"), result("c0")], CALLS[:1])

    assert [type(event) for event in settled] == [TurnStarted, ToolEnded, UserSaid]


@given(
    given=st.lists(st.sampled_from(["c0", "c1", "c2", "c9"]), max_size=5),
    words=st.booleans(),
    elsewhere=st.lists(st.lists(st.sampled_from(["p0", "p1"]), unique=True, max_size=2), max_size=3),
)
def test_the_log_is_always_well_formed(given: list[str], words: bool, elsewhere: list[list[str]]) -> None:
    events: list[Event] = []
    for number, made in enumerate(elsewhere):
        turn_id = f"past-{number}"
        calls = [ToolCall(f"{name}-{number}", "f") for name in made]
        events += [TurnStarted(turn_id=turn_id), UserSaid(turn_id=turn_id, parts=(Text("x"),))]
        events += [ModelSaid(turn_id=turn_id, parts=tuple(calls))]
        events += [TurnEnded(turn_id=turn_id, outcome="done", awaiting=tuple(call.id for call in calls))]
    events += [TurnStarted(turn_id="t1"), *map(result, given)]
    events += [UserSaid(turn_id="t1", parts=(Text("and"),))] if words else []

    settled = settle_calls(events, CALLS)

    ending: list[Event] = [ModelSaid(turn_id="t1", parts=()), TurnEnded(turn_id="t1", outcome="done")]
    assert_well_formed([*before(), *settled, *ending])
