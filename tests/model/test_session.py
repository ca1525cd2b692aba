import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.entry import Entry
from holdfast.model.event import (
    Compacted,
    CompactionFailed,
    CompactionUndone,
    Ended,
    Event,
    Forked,
    Imported,
    ItemAdded,
    ModeChanged,
    ModelChanged,
    ModelSaid,
    Pinned,
    ProcessStarted,
    Quarantined,
    Recovered,
    Reopened,
    Restored,
    SessionOpened,
    Titled,
    ToolEnded,
    ToolStarted,
    Trashed,
    TurnEnded,
    TurnStarted,
    Unpinned,
    Usage,
    UserSaid,
)
from holdfast.model.message import Image, Message, Reasoning, Text, ToolCall, ToolResult, text_of
from holdfast.model.session import (
    ACTIVE,
    PREVIEW_LENGTH,
    TITLE_LENGTH,
    Session,
    SessionSummary,
    as_message,
    collapse_line,
    fold,
    messages,
    preview,
    summarise,
    title_line,
)
from tests.model.strategies import TEXT, events

AT = 1_000


def words(text: str) -> tuple[Text, ...]:
    return (Text(text),)


TABLE: list[tuple[SessionSummary, Event, dict[str, object]]] = [
    (
        SessionSummary(),
        SessionOpened(source="api", channel="api:k", model="m", title="Plans\n", side_of="hf-1"),
        {"source": "api", "channel": "api:k", "model": "m", "title": "Plans", "side_of": "hf-1", "created_at": AT},
    ),
    (SessionSummary(), SessionOpened(source="api", title="\n"), {"source": "api", "created_at": AT}),
    (SessionSummary(), UserSaid(turn_id="t", parts=words("Hello\nyou")), {"message_count": 1, "preview": "Hello you"}),
    (
        SessionSummary(preview="Hello", message_count=4),
        UserSaid(turn_id="t", parts=words("again")),
        {"preview": "Hello", "message_count": 5},
    ),
    (
        SessionSummary(tokens_in=1, tokens_out=2),
        ModelSaid(turn_id="t", parts=words("Hi"), usage=Usage(tokens_in=10, tokens_out=20)),
        {"message_count": 1, "tokens_in": 11, "tokens_out": 22},
    ),
    (SessionSummary(), ToolStarted(turn_id="t", call_id="c", name="n"), {}),
    (SessionSummary(), ToolEnded(turn_id="t", call_id="c", outcome="ok"), {"message_count": 1}),
    (SessionSummary(turn_count=1), TurnStarted(turn_id="t"), {"turn_count": 2, "open_turn": "t"}),
    (
        SessionSummary(open_turn="t", turn_count=1),
        TurnEnded(turn_id="t", outcome="done"),
        {"open_turn": None, "turn_count": 1},
    ),
    (SessionSummary(epoch=1), Compacted(epoch=2, upto_seq=9, summary="s", how="model"), {"epoch": 2}),
    (SessionSummary(epoch=2), CompactionFailed(reason="timeout"), {"epoch": 2}),
    (SessionSummary(epoch=2), CompactionUndone(epoch=1), {"epoch": 1}),
    (SessionSummary(title="old"), Titled(title=" new \t title"), {"title": "new title"}),
    (SessionSummary(title="old"), Titled(title="\n"), {"title": None}),
    (SessionSummary(model="m"), ModelChanged(model="n"), {"model": "n"}),
    (SessionSummary(mode="plan"), ModeChanged(mode="ask", previous="plan"), {"mode": "ask"}),
    (SessionSummary(), SessionOpened(source="run", mode="plan"), {"source": "run", "mode": "plan", "created_at": AT}),
    (
        SessionSummary(open_turn="t"),
        Ended(reason="reaped", last_sign_at=7),
        {"ended_at": 7, "end_reason": "reaped", "open_turn": "t"},
    ),
    (SessionSummary(), Ended(reason="user"), {"ended_at": AT, "end_reason": "user"}),
    (SessionSummary(), Quarantined(reason="three attempts"), {"quarantined": "three attempts"}),
    (SessionSummary(ended_at=7, end_reason="idle"), Reopened(), {"ended_at": None, "end_reason": None}),
    (SessionSummary(quarantined="why", open_turn="t"), Reopened(), {"quarantined": None, "open_turn": "t"}),
    (SessionSummary(), Pinned(), {"pinned": 1}),
    (SessionSummary(pinned=1), Unpinned(), {"pinned": 0}),
    (SessionSummary(), Trashed(), {"trashed_at": AT}),
    (SessionSummary(trashed_at=7), Restored(), {"trashed_at": None}),
    (
        SessionSummary(
            *("Plans", "chat", "cli:1", "m", 1, 1, 7, "user"),
            open_turn="t",
            pinned=1,
            trashed_at=7,
            quarantined="why",
            message_count=3,
        ),
        Forked(parent_id="hf-1", at_seq=9, at_hash="h", source="api"),
        {
            "parent_id": "hf-1",
            "source": "api",
            "channel": None,
            "created_at": AT,
            "ended_at": None,
            "end_reason": None,
            "open_turn": None,
            "pinned": 0,
            "trashed_at": None,
            "quarantined": None,
            "title": "Plans",
            "message_count": 3,
        },
    ),
    (
        SessionSummary(source="chat"),
        Forked(parent_id="hf-1", at_seq=9, at_hash="h"),
        {"source": "chat", "parent_id": "hf-1", "created_at": AT},
    ),
    (SessionSummary(), Imported(format="hermes"), {}),
    (
        SessionSummary(tokens_in=1),
        Imported(format="hermes", usage=Usage(tokens_in=2, tokens_out=3)),
        {"tokens_in": 3, "tokens_out": 3},
    ),
    (SessionSummary(), Recovered(turn_id="t", attempt=1, action="continue"), {}),
    (SessionSummary(), ProcessStarted(process_id="p", command="sleep"), {}),
]


@pytest.mark.parametrize(("before", "event", "changes"), TABLE, ids=[type(event).__name__ for _, event, _ in TABLE])
def test_a_summary_after(before: SessionSummary, event: Event, changes: dict[str, object]) -> None:
    after = fold(before, event, AT)

    for name in SessionSummary.__struct_fields__:
        moved = name == "updated_at" or (name == "active_at" and isinstance(event, ACTIVE))
        expected = AT if moved else changes.get(name, getattr(before, name))
        assert getattr(after, name) == expected, name


def test_activity_is_the_last_message_and_never_goes_backwards() -> None:
    said = UserSaid(turn_id="t", parts=(Text("x"),))
    summary = SessionSummary()
    for event, at in ((SessionOpened(source="chat"), 10), (said, 20), (Titled(title="a"), 30), (said, 15)):
        summary = fold(summary, event, at)

    assert (summary.active_at, summary.updated_at) == (20, 30)
    assert fold(summary, Reopened(), 40).active_at == 40


def test_times_in_a_summary_never_go_backwards() -> None:
    summary = fold(fold(SessionSummary(), Pinned(), 100), Unpinned(), 40)

    assert summary.updated_at == 100


@given(st.lists(st.tuples(events(), st.integers(1, 2**50)), max_size=30), st.integers(0, 30))
def test_a_summary_built_event_by_event_equals_the_summary_of_the_whole_log(
    pairs: list[tuple[Event, int]], cut: int
) -> None:
    entries = [Entry(seq, at, event) for seq, (event, at) in enumerate(pairs, start=1)]
    bit_by_bit = summarise(entries[:cut])
    for entry in entries[cut:]:
        bit_by_bit = fold(bit_by_bit, entry.event, entry.at)

    assert bit_by_bit == summarise(entries)


@given(st.lists(events(), max_size=30))
def test_the_message_count_is_the_number_of_messages(facts: list[Event]) -> None:
    entries = [Entry(seq, seq, event) for seq, event in enumerate(facts, start=1)]

    assert summarise(entries).message_count == len(messages(entries))


@given(st.lists(events(), max_size=30))
def test_a_preview_is_one_line_that_any_database_can_store(facts: list[Event]) -> None:
    summary = summarise(Entry(seq, seq, event) for seq, event in enumerate(facts, start=1))

    for text in (summary.title or "", summary.preview):
        assert text == " ".join(text.split())
        assert "\0" not in text
        text.encode("utf-8")


# state


@pytest.mark.parametrize(
    ("summary", "worker", "state"),
    [
        (SessionSummary(), None, "waiting"),
        (SessionSummary(), "worker-1", "waiting"),
        (SessionSummary(open_turn="t"), "worker-1", "running"),
        (SessionSummary(open_turn="t"), None, "interrupted"),
        (SessionSummary(quarantined="why"), None, "quarantined"),
        (SessionSummary(quarantined="why", open_turn="t"), "worker-1", "quarantined"),
        (SessionSummary(ended_at=7, end_reason="user"), None, "ended"),
        (SessionSummary(ended_at=7, end_reason="user", quarantined="why", open_turn="t"), "worker-1", "ended"),
        (SessionSummary(trashed_at=7), None, "waiting"),
    ],
)
def test_the_state_of_a_session(summary: SessionSummary, worker: str | None, state: str) -> None:
    assert Session("hf-1", 1, "h", worker, 1, summary).state == state


# messages


def test_messages_are_in_the_order_of_the_log() -> None:
    call = ToolCall("c1", "terminal")
    facts: list[Event] = [
        SessionOpened(source="chat"),
        TurnStarted(turn_id="t"),
        UserSaid(turn_id="t", parts=words("list")),
        ModelSaid(turn_id="t", parts=(Reasoning("hm"), Text("looking"), call)),
        ToolStarted(turn_id="t", call_id="c1", name="terminal"),
        ToolEnded(turn_id="t", call_id="c1", outcome="failed", parts=words("no such file")),
        ModelSaid(turn_id="t", parts=words("sor"), partial=True),
        TurnEnded(turn_id="t", outcome="interrupted"),
    ]
    said = messages(Entry(seq, seq * 10, event) for seq, event in enumerate(facts, start=1))

    assert [(m.seq, m.at, m.role, m.text, m.partial) for m in said] == [
        (3, 30, "user", "list", False),
        (4, 40, "assistant", "looking", False),
        (6, 60, "tool", "no such file", False),
        (7, 70, "assistant", "sor", True),
    ]
    assert said[1].tool_calls == (call,)
    assert said[2].parts == (ToolResult("c1", words("no such file"), "failed"),)
    assert {m.turn_id for m in said} == {"t"}


@given(events())
def test_only_four_kinds_of_event_have_a_message(event: Event) -> None:
    carried = as_message(Entry(1, AT, event))

    has_role = isinstance(event, ItemAdded) and event.role is not None
    assert isinstance(carried, Message) == (has_role or isinstance(event, UserSaid | ModelSaid | ToolEnded))


def test_the_visible_text_is_texts_and_results_only() -> None:
    parts = (
        Reasoning("thinking"),
        Text("a"),
        Image("data:,"),
        ToolCall("c", "n"),
        ToolResult("c", words("b")),
        Text("c"),
    )

    assert text_of(parts) == "abc"


# lines


@given(TEXT)
def test_one_line_contains_nothing_that_garbles_a_terminal(text: str) -> None:
    line = collapse_line(text)

    assert not set(line) & {
        chr(code) for code in (*range(32), *range(0x7F, 0xA0), 0x2028, 0x2029, *range(0x202A, 0x202F))
    }
    assert collapse_line(line) == line
    line.encode("utf-8")


@pytest.mark.parametrize("text", ["Plans for May", "👩\u200d🔬", "می\u200cخواهم", "日本語", "naïve café", "a - b_c"])
def test_one_line_leaves_ordinary_text_unchanged(text: str) -> None:
    assert collapse_line(text) == text


@given(TEXT.map(lambda text: text * 40))
def test_lines_do_not_exceed_the_limit(text: str) -> None:
    assert len(preview(text)) <= PREVIEW_LENGTH
    assert len(title_line(text)) <= TITLE_LENGTH
