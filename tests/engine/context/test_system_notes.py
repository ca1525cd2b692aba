"""The notes for the model about its processes, and their position."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.context.context import Context
from holdfast.model.entry import Entry
from holdfast.model.event import (
    Event,
    ModelSaid,
    ProcessEnded,
    ProcessesReceived,
    ProcessExpired,
    Renewed,
    Rewound,
    SessionOpened,
    ToolEnded,
    TurnEnded,
    TurnStarted,
    UserSaid,
)
from holdfast.model.message import Message, Text, ToolCall, ToolResult
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.repos import log
from tests.engine.stage import set_up

ENDED = ProcessEnded(process_id="proc-1", reason="exit code 3", exit_code=3, command="make", tail="two\nlines")


def turn(number: int, *calls: str) -> list[Event]:
    """A turn in which the model makes these calls at once."""
    turn_id = f"turn-{number}"
    asked = tuple(ToolCall(call, "terminal", "{}") for call in calls)
    return [
        TurnStarted(turn_id=turn_id),
        UserSaid(turn_id=turn_id, parts=(Text("Go on."),)),
        *([ModelSaid(turn_id=turn_id, parts=(Text("I look."), *asked))] if calls else []),
        *(ToolEnded(turn_id=turn_id, call_id=call, outcome="ok", parts=(Text("seen"),)) for call in calls),
        ModelSaid(turn_id=turn_id, parts=(Text("Done."),)),
        TurnEnded(turn_id=turn_id, outcome="done"),
    ]


def entries(*events: Event) -> list[Entry]:
    return [Entry(number, number, event) for number, event in enumerate((SessionOpened(source="api"), *events), 1)]


def shown(*events: Event) -> list[Message]:
    return list(Context(entries(*events)).view)


def test_an_ended_process_is_reported_with_the_end_of_its_output() -> None:
    *_, note = shown(*turn(1), ENDED)

    assert note.role == "user"
    assert note.text == (
        "[Note from the system, not from the user: background process proc-1 (`make`) ended: exit code 3. "
        "The end of its output:\ntwo\nlines]"
    )


def test_a_process_that_the_model_ended_is_not_reported() -> None:
    killed = ProcessEnded(process_id="proc-1", reason="ended by the agent (ended by signal 15)")

    assert len(shown(*turn(1), killed)) == 2


def test_other_notes() -> None:
    expired = ProcessExpired(process_id="proc-1", ttl_seconds=7200, evidence="serving", command="serve")
    reset = Renewed(previous_id="hf-0", rule="daily", reason="6 o'clock", processes=("proc-1",))
    received = ProcessesReceived(processes=("proc-1", "proc-2"), origin="hf-0")

    texts = [message.text for message in shown(expired, reset, received)]

    assert "still runs after 2 h, its time to live: serving" in texts[0]
    assert "replaced hf-0 (6 o'clock). Background processes of that one may still run: proc-1" in texts[1]
    assert "proc-1, proc-2 belong to this session now" in texts[2]
    assert shown(Renewed(previous_id="hf-0", rule="idle")) == []


def test_a_note_waits_for_the_results_of_all_calls() -> None:
    events = turn(1, "a", "b")
    place = next(n for n, event in enumerate(events) if isinstance(event, ToolEnded))

    messages = shown(*events[: place + 1], ENDED, *events[place + 1 :])

    assert [message.role for message in messages] == ["user", "assistant", "tool", "tool", "user", "assistant"]
    assert [message.seq for message in messages] == sorted(message.seq for message in messages)


def test_a_rewind_removes_its_notes() -> None:
    events = turn(1)

    assert len(shown(*events, *turn(2), ENDED, Rewound(to_seq=1 + len(events)))) == 2


logs = st.lists(st.integers(0, 3), min_size=1, max_size=5).map(
    lambda sizes: [e for n, size in enumerate(sizes) for e in turn(n, *(f"c{n}-{k}" for k in range(size)))]
)


@given(logs, st.lists(st.integers(0, 60), max_size=6))
def test_calls_keep_their_results_at_every_prefix_and_shown_messages_stay(
    events: list[Event], places: list[int]
) -> None:
    for place in places:
        events.insert(place % (len(events) + 1), ENDED)
    context, before = Context(), []
    for entry in entries(*events):
        context.add(entry)
        view = list(context.view)
        if not _owes(view):
            assert view[: len(before)] == before, "a request begins as the one before it"
            before = view

    assert sum(message.role == "user" and message.text.startswith("[Note") for message in before) == len(places)
    for message, following in itertools.pairwise(before):
        if message.tool_calls or message.role == "tool":
            owed = _owes(before[: before.index(message) + 1])
            assert following.role == "tool" or not owed, "nothing is between a call and its results"


def _owes(messages: list[Message]) -> set[str]:
    owed: set[str] = set()
    for message in messages:
        owed |= {call.id for call in message.tool_calls}
        owed -= {part.call_id for part in message.parts if isinstance(part, ToolResult)}
    return owed


async def test_the_model_gets_the_note_at_its_next_step(tmp_path, stages) -> None:
    stage = await set_up(
        tmp_path, ScriptStep(call=(ScriptedCall("look"),)), ScriptStep(say="I know."), ScriptStep(say="Yes.")
    )
    stages.append(stage)
    session = await stage.session()
    ended = False

    async def ending(arguments, scene):
        nonlocal ended
        if not ended:
            ended = True
            await stage.database.write(log.annotate, session.id, ENDED, at=stage.engine.services.clock.now())
        return await type(stage.reader).run(stage.reader, arguments, scene)

    stage.reader.run = ending
    await stage.play(session.id, "Look.")
    await stage.play(session.id, "And?")

    first, second, third = (request.messages for request in stage.requests)
    assert [message.role for message in second] == ["user", "assistant", "tool", "user"]
    assert "proc-1" in second[-1].text
    assert third[: len(second)] == second
    assert "proc-1" not in str(first)
