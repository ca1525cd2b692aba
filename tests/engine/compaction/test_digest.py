"""The digest: useful, and never larger than its budget."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.engine.compaction.digest import digest
from holdfast.engine.context.tokens import estimate_frame, estimate_message, estimate_text
from holdfast.engine.context.truncate import truncate_results
from holdfast.engine.turn.request import fitting
from holdfast.model.message import File, Image, Message, Part, Reasoning, Text, ToolCall, ToolResult
from holdfast.model.provider import ToolSpec


def message(seq: int, role: str, *parts: Part, partial: bool = False) -> Message:
    return Message(seq, role, parts, 1, partial)  # type: ignore[arg-type]


WORK = [
    message(1, "user", Text("Please fix the login page. It must not ask twice.")),
    message(
        2,
        "assistant",
        ToolCall("c1", "read_file", '{"path": "src/login.py"}'),
        ToolCall("c2", "terminal", '{"command": "make test"}'),
    ),
    message(3, "tool", ToolResult("c1", (Text("def login(): ..."),))),
    message(4, "tool", ToolResult("c2", (Text("....\n2 failed, 40 passed"),), "failed")),
    message(5, "assistant", Text("I decided to use a session cookie instead of a token.")),
    message(6, "assistant", ToolCall("c3", "edit_file", '{"path": "src/login.py", "old": "a", "new": "b"}')),
    message(7, "tool", ToolResult("c3", (Text("done"),))),
    message(8, "assistant", ToolCall("c4", "terminal", '{"command": "deploy"}')),
    message(9, "tool", ToolResult("c4", (Text("Nobody knows."),), "unknown")),
    message(10, "assistant", Text("TODO: the logout page is still missing. Shall I go on?")),
]


def test_it_lists_requests_files_commands_decisions_and_open_items() -> None:
    text = digest("", WORK, 2_000)

    assert "Asked:\n- [1] Please fix the login page." in text
    assert "- [2] src/login.py read by read_file" in text
    assert "- [6] src/login.py changed by edit_file" in text
    assert "- [2] make test → failed: 2 failed, 40 passed" in text
    assert "- [8] deploy → unknown" in text
    assert "Decided:\n- [1] It must not ask twice.\n- [5] I decided to use a session cookie" in text
    assert "call c4: unknown" in text
    assert "still missing" in text
    assert "asked, not answered yet: TODO: the logout page is still missing. Shall I go on?" in text


def test_the_first_and_the_newest_messages_stay_when_not_all_fit() -> None:
    many = [message(n, "user", Text(f"Wish number {n}, and please mind it.")) for n in range(1, 500)]

    text = digest("", many, 600)

    assert "[1] Wish number 1," in text
    assert "[499] Wish number 499," in text
    assert "more …)" in text


def test_the_earlier_summary_is_kept_at_the_start() -> None:
    assert digest("They began to build a house.", WORK, 1_000).startswith("Before that:\nThey began to build a house.")


words = st.text(st.characters(codec="utf-8"), max_size=400) | st.just("x" * 50_000) | st.just("日本語のテキスト" * 300)
parts = (
    words.map(Text)
    | words.map(Reasoning)
    | st.builds(ToolCall, id=words, name=words, arguments=words | st.just('{"path": "a", "command": 3}'))
    | st.builds(ToolResult, call_id=words, parts=words.map(lambda text: (Text(text),)))
    | st.just(Image("data:,"))
    | st.just(File("data:,", "name"))
)
messages = st.lists(
    st.builds(
        Message,
        st.integers(1, 10**6),
        st.sampled_from(["user", "assistant", "tool"]),
        st.lists(parts, max_size=3).map(tuple),
        st.just(1),
        st.booleans(),
    ),
    max_size=12,
)


@given(before=words, said=messages, budget=st.integers(150, 4_000))
def test_promise_18_it_never_fails_and_never_exceeds_its_budget(before: str, said: list[Message], budget: int) -> None:
    text = digest(before, said, budget)

    assert text
    assert estimate_text(text) <= budget + 1


# truncation and sizes


@given(said=messages, chars=st.sampled_from([200, 600, 4_000]))
def test_truncation_is_idempotent_and_never_makes_larger(said: list[Message], chars: int) -> None:
    for one in said:
        thinned = truncate_results(one, chars)

        assert truncate_results(thinned, chars) == thinned or estimate_message(thinned) <= estimate_message(one)
        assert estimate_message(thinned) <= estimate_message(one) + 20
        assert [type(part) for part in thinned.parts] == [type(part) for part in one.parts]


@pytest.mark.parametrize(
    ("text", "least", "most"),
    [
        ("The quick brown fox jumps over the lazy dog. " * 10, 90, 160),
        ("Съешь же ещё этих мягких французских булок. " * 10, 150, 320),
        ("我喜欢在下雨的时候喝茶。" * 10, 100, 160),
        ("🦊🐝🌧️" * 10, 40, 80),
        ("", 0, 0),
    ],
    ids=["english", "russian", "chinese", "emoji", "nothing"],
)
def test_text_is_estimated_by_its_script(text: str, least: int, most: int) -> None:
    assert least <= estimate_text(text) <= most


def test_images_files_calls_and_tools_are_estimated() -> None:
    tool = ToolSpec("look", "Looks at something. " * 30, {"type": "object", "properties": {}})

    assert estimate_message(message(1, "user", Image("https://x.test/a.png"))) > 1_500
    assert estimate_message(message(1, "user", File("data:application/pdf;base64," + "A" * 80_000))) > 15_000
    assert estimate_message(message(1, "assistant", ToolCall("c", "look", "x" * 3_000))) > 1_000
    assert estimate_frame("", (tool, tool)) > estimate_frame("", (tool,)) > 200


# short tool descriptions


PAGE = "Looks at something. It is quite good at that.\n\n" + "A page about looking. " * 100
TOOL = ToolSpec(
    "look",
    PAGE,
    {
        "type": "object",
        "properties": {"at": {"type": "string", "description": "What to look at."}, "for": {"type": "integer"}},
        "required": ["at"],
    },
)


@pytest.mark.parametrize(
    ("window", "description", "described", "parameters"),
    [
        (100_000, PAGE, True, ["at", "for"]),
        (400, "Looks at something. It is quite good at that.", True, ["at", "for"]),
        (220, "Looks at something", False, ["at", "for"]),
        (150, "Looks at something", False, ["at"]),
    ],
)
def test_tools_are_described_more_briefly_where_the_window_is_small(
    window: int, description: str, described: bool, parameters: list[str]
) -> None:
    [shown] = fitting("", (TOOL,), window)

    assert shown.description == description
    assert list(shown.parameters["properties"]) == parameters  # type: ignore[call-overload]
    assert shown.parameters["properties"]["at"]["type"] == "string"  # type: ignore[index]
    assert ("description" in shown.parameters["properties"]["at"]) == described  # type: ignore[index]
