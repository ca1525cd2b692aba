"""The searchable text of an event."""

import json

import pytest
from hypothesis import given

from holdfast.model.event import (
    Compacted,
    Ended,
    Event,
    ModelSaid,
    SessionOpened,
    Titled,
    ToolEnded,
    TurnStarted,
    UserSaid,
)
from holdfast.model.message import File, Image, Reasoning, Text, ToolCall, ToolResult
from holdfast.model.search_text import searchable
from tests.model.strategies import events


def said(*parts: Text | Image | File | Reasoning | ToolCall | ToolResult) -> ModelSaid:
    return ModelSaid(turn_id="turn-1", parts=parts)


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (UserSaid(turn_id="t", parts=(Text("one"), Text("two"))), "onetwo"),
        (said(Text("answer"), Reasoning(text="thought")), "answer\nthought"),
        (said(Text("look"), ToolCall("c", "terminal", '{"command":"ls"}')), 'look\nterminal\n{"command":"ls"}'),
        (ToolEnded(turn_id="t", call_id="c", outcome="ok", parts=(Text("a.txt"),)), "a.txt"),
        (said(ToolResult("c", (Text("inside"),))), "inside"),
        (UserSaid(turn_id="t", parts=(Text("see"), File(url="file:1", name="report.pdf"))), "see\nreport.pdf"),
        (Compacted(epoch=1, upto_seq=9, summary="what came before", how="model"), "what came before"),
        (Titled(title="A name"), "A name"),
        (SessionOpened(source="run", title="Named at once"), "Named at once"),
    ],
)
def test_messages_reasoning_calls_results_titles_and_summaries_can_be_found(event: Event, words: str) -> None:
    assert searchable(event) == words


@pytest.mark.parametrize(
    "event",
    [
        SessionOpened(source="run", system="You are helpful."),
        TurnStarted(turn_id="turn-1", key="secret"),
        Ended(reason="user", detail="bye"),
        UserSaid(turn_id="t", parts=(Image(url="data:image/png;base64,AAAA"),)),
        said(Reasoning(opaque={"signature": "AAAA"})),
    ],
)
def test_events_without_text_are_not_searched(event: Event) -> None:
    assert searchable(event) == ""


def test_text_that_json_escapes_in_a_call_can_be_found_unescaped() -> None:
    arguments = json.dumps({"path": "a.py", "lines": ['print("你好")\n', {"more": "naïve"}]})

    words = searchable(said(ToolCall("c", "write", arguments)))

    assert words == f'write\na.py\nprint("你好")\n\nnaïve\n{arguments}'


@pytest.mark.parametrize("arguments", ['{"a": "\\u12', "\\", '"\\n" nonsense', '["\\n",' + "[" * 100_000])
def test_arguments_that_are_not_json_are_indexed_unchanged(arguments: str) -> None:
    assert searchable(said(ToolCall("c", "write", arguments))) == f"write\n{arguments}"


@given(events())
def test_every_event_has_searchable_text_or_none(event: Event) -> None:
    assert isinstance(searchable(event), str)
