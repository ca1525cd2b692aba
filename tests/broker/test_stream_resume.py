"""Streams that continue after the death of a worker: nothing twice, nothing missing, and nothing mixed."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.stream_resume import (
    ChatStreamResume,
    ResponseStreamResume,
    StreamCut,
    StreamMismatch,
    StreamResume,
    resume_for,
)


def frame(data: object) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return frame({"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def telling(words: list[str]) -> bytes:
    """A complete reply in these chunks."""
    said = b"".join(chunk({"content": one}) for one in words)
    return chunk({"role": "assistant", "content": ""}) + said + chunk({}, "stop") + frame(b"[DONE]")


def heard(stream: bytes) -> str:
    found = [one.removeprefix("data: ") for one in stream.decode().split("\n\n") if one.startswith("data: {")]
    deltas = [json.loads(one)["choices"][0]["delta"] for one in found]
    return "".join(delta.get("content", "") for delta in deltas)


def pieces_of(text: str, cuts: list[int]) -> list[str]:
    places = sorted({0, len(text), *(cut % (len(text) + 1) for cut in cuts)})
    return [text[a:b] for a, b in pairwise(places)]


@given(
    text=st.text(min_size=1, max_size=60),
    tellings=st.lists(st.lists(st.integers(0, 100), max_size=6), min_size=1, max_size=5),
    deaths=st.lists(st.integers(0, 5000), max_size=5),
    step=st.integers(1, 400),
)
def test_a_chat_stream_is_delivered_once_however_often_its_worker_dies(
    text: str, tellings: list[list[int]], deaths: list[int], step: int
) -> None:
    splice, out = ChatStreamResume(), b""
    whole = [telling(pieces_of(text, cuts)) for cuts in tellings]
    for number, stream in enumerate(whole):
        is_last = number == len(whole) - 1
        length = len(stream) if is_last or not deaths else deaths[number % len(deaths)] % len(stream)
        splice.begin()
        for at in range(0, length, step):
            out += splice.take(stream[at : min(at + step, length)])

    assert heard(out) == text
    assert out.count(b'"role"') == 1
    assert out.count(b'"stop"') == 1
    assert out.endswith(frame(b"[DONE]"))


def test_a_different_reply_is_not_mixed_in() -> None:
    splice = ChatStreamResume()
    splice.take(chunk({"content": "The answer is 4"}))
    splice.begin()

    with pytest.raises(StreamMismatch):
        splice.take(chunk({"content": "The answer is 5"}))


def test_calls_after_the_text_are_sent_once() -> None:
    splice = ChatStreamResume()
    call = chunk({"tool_calls": [{"index": 0, "id": "c1"}]})
    first = splice.take(chunk({"content": "I look"}) + call)
    splice.begin()

    second = splice.take(chunk({"content": "I look"}) + call + chunk({}, "tool_calls") + frame(b"[DONE]"))

    assert first == chunk({"content": "I look"}) + call
    assert second == chunk({}, "tool_calls") + frame(b"[DONE]")


@pytest.mark.parametrize(
    ("splice", "last"),
    [
        (ChatStreamResume(), {"error": {"message": "this worker is about to stop", "code": "unavailable"}}),
        (
            ResponseStreamResume(),
            {"type": "error", "sequence_number": 3, "code": "unavailable", "message": "it leaves"},
        ),
    ],
)
def test_a_shutdown_event_of_a_worker_does_not_end_the_stream(splice: StreamResume, last: dict[str, Any]) -> None:
    with pytest.raises(StreamCut):
        splice.take(frame(last))


def test_an_error_of_the_turn_is_forwarded() -> None:
    failed = frame({"error": {"message": "no", "code": "refused"}})

    assert ChatStreamResume().take(failed) == failed


def test_events_of_a_response_are_identified_by_their_numbers() -> None:
    splice = ResponseStreamResume()
    events = [frame({"type": "response.x", "sequence_number": n}) for n in range(5)]
    assert splice.take(b"".join(events[:3])) == b"".join(events[:3])
    splice.begin()

    assert splice.take(b"".join(events)) == b"".join(events[3:])


def test_an_endless_chat_is_not_kept() -> None:
    splice, words = ChatStreamResume(), chunk({"content": "x" * 2**20})
    with pytest.raises(StreamMismatch, match="too long"):
        for _ in range(8):
            splice.take(words)


def test_the_end_is_sent_once() -> None:
    splice, stream = ChatStreamResume(), telling(["yes"])
    assert splice.take(stream) == stream
    splice.begin()

    assert splice.take(stream) == b""


def test_heartbeats_always_pass() -> None:
    for splice in (ChatStreamResume(), ResponseStreamResume()):
        assert splice.take(b": still here\n\n") == b": still here\n\n"


def test_only_routes_that_can_be_repeated_are_resumed() -> None:
    assert resume_for("/v1/sessions/x/events") is None
