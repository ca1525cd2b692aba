"""Which words of an event can be searched for."""

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
from holdfast.model.words import searchable
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
def test_all_that_was_said_thought_called_returned_titled_and_summed_up_can_be_found(event: Event, words: str) -> None:
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
def test_what_nobody_said_is_not_searched(event: Event) -> None:
    assert searchable(event) == ""


def test_words_that_json_has_escaped_in_a_call_can_be_found_as_they_are_meant() -> None:
    arguments = json.dumps({"path": "a.py", "lines": ['print("你好")\n', {"more": "naïve"}]})

    words = searchable(said(ToolCall("c", "write", arguments)))

    assert words == f'write\na.py\nprint("你好")\n\nnaïve\n{arguments}'


@pytest.mark.parametrize("arguments", ['{"a": "\\u12', "\\", '"\\n" nonsense', '["\\n",' + "[" * 100_000])
def test_arguments_that_are_not_json_are_taken_as_they_are(arguments: str) -> None:
    assert searchable(said(ToolCall("c", "write", arguments))) == f"write\n{arguments}"


@given(events())
def test_every_event_has_words_or_none(event: Event) -> None:
    assert isinstance(searchable(event), str)
