"""Streams that go on over the death of a worker: nothing twice, nothing missing, and nothing mixed."""

import json
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.broker.splice import ChatSplice, Cut, Mismatch, ResponseSplice, Splice, splice_for


def frame(data: object) -> bytes:
    return b"data: " + (data if isinstance(data, bytes) else json.dumps(data).encode()) + b"\n\n"


def chunk(delta: dict[str, Any], finish: str | None = None) -> bytes:
    return frame({"id": "x", "choices": [{"index": 0, "delta": delta, "finish_reason": finish}]})


def telling(words: list[str]) -> bytes:
    """A whole reply, in these pieces."""
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
def test_a_chat_is_heard_once_however_often_its_teller_dies(
    text: str, tellings: list[list[int]], deaths: list[int], step: int
) -> None:
    splice, out = ChatSplice(), b""
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


def test_a_model_that_says_something_else_is_not_mixed_in() -> None:
    splice = ChatSplice()
    splice.take(chunk({"content": "The answer is 4"}))
    splice.begin()

    with pytest.raises(Mismatch):
        splice.take(chunk({"content": "The answer is 5"}))


def test_calls_behind_the_words_come_once() -> None:
    splice = ChatSplice()
    call = chunk({"tool_calls": [{"index": 0, "id": "c1"}]})
    first = splice.take(chunk({"content": "I look"}) + call)
    splice.begin()

    second = splice.take(chunk({"content": "I look"}) + call + chunk({}, "tool_calls") + frame(b"[DONE]"))

    assert first == chunk({"content": "I look"}) + call
    assert second == chunk({}, "tool_calls") + frame(b"[DONE]")


@pytest.mark.parametrize(
    ("splice", "last"),
    [
        (ChatSplice(), {"error": {"message": "this worker is about to stop", "code": "unavailable"}}),
        (ResponseSplice(), {"type": "error", "sequence_number": 3, "code": "unavailable", "message": "it leaves"}),
    ],
)
def test_a_worker_that_says_it_leaves_is_not_the_end(splice: Splice, last: dict[str, Any]) -> None:
    with pytest.raises(Cut):
        splice.take(frame(last))


def test_an_error_of_the_turn_is_passed_on() -> None:
    failed = frame({"error": {"message": "no", "code": "refused"}})

    assert ChatSplice().take(failed) == failed


def test_events_of_a_response_are_told_by_their_numbers() -> None:
    splice = ResponseSplice()
    events = [frame({"type": "response.x", "sequence_number": n}) for n in range(5)]
    assert splice.take(b"".join(events[:3])) == b"".join(events[:3])
    splice.begin()

    assert splice.take(b"".join(events)) == b"".join(events[3:])


@given(text=st.text(min_size=1, max_size=60), cuts=st.lists(st.lists(st.integers(0, 100), max_size=6), min_size=2))
def test_words_of_a_response_are_told_once_in_whatever_pieces(text: str, cuts: list[list[int]]) -> None:
    splice, out = ResponseSplice(), b""
    for number, places in enumerate(cuts):
        told, pieces = 1, pieces_of(text, places)
        splice.begin()
        for piece in pieces[: len(pieces) if number == len(cuts) - 1 else len(pieces) // 2]:
            told += len(piece)
            event = {"type": "response.output_text.delta", "sequence_number": told, "delta": piece}
            out += splice.take(b"event: response.output_text.delta\n" + frame(event))

    found = [json.loads(line.removeprefix("data: ")) for line in out.decode().split("\n") if line.startswith("data: ")]
    assert "".join(one["delta"] for one in found) == text


def test_a_chat_without_end_is_not_kept() -> None:
    splice, words = ChatSplice(), chunk({"content": "x" * 2**20})
    with pytest.raises(Mismatch, match="no end"):
        for _ in range(8):
            splice.take(words)


def test_the_end_comes_once() -> None:
    splice, stream = ChatSplice(), telling(["yes"])
    assert splice.take(stream) == stream
    splice.begin()

    assert splice.take(stream) == b""


def test_heartbeats_always_pass() -> None:
    for splice in (ChatSplice(), ResponseSplice()):
        assert splice.take(b": still here\n\n") == b": still here\n\n"


def test_only_what_can_be_told_again_is_spliced() -> None:
    assert splice_for("/v1/sessions/x/events") is None
