"""Deltas that arrive together are shown together, and no text is lost."""

from collections.abc import AsyncIterator, Iterator
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import BadReply
from holdfast.model.message import Reasoning, Text, ToolCall
from holdfast.model.provider import Delta, ModelReply, ReasoningDelta, TextDelta
from holdfast.providers.well_formed import join_surrogates, merge_deltas


@given(st.lists(st.tuples(st.sampled_from([TextDelta, ReasoningDelta]), st.text())))
def test_merged_deltas_have_the_same_text_in_the_same_order(pieces: list[tuple[type[Delta], str]]) -> None:
    merged = list(merge_deltas(kind(text) for kind, text in pieces))

    assert [(kind, letter) for kind, text in pieces for letter in text] == [
        (type(delta), letter) for delta in merged for letter in delta.text
    ]
    assert all(type(one) is not type(other) for one, other in pairwise(merged))


def test_text_before_an_error_is_shown() -> None:
    def failing() -> Iterator[Delta]:
        yield TextDelta("Hel")
        yield TextDelta("lo")
        raise BadReply("no JSON")

    merged = merge_deltas(failing())

    assert next(merged) == TextDelta("Hello")
    with pytest.raises(BadReply):
        next(merged)


async def test_a_reply_with_half_a_surrogate_pair_anywhere_can_be_stored() -> None:
    half = "a\ud83d"

    async def said() -> AsyncIterator[ModelReply]:
        parts = Text(half), Reasoning(half, "anthropic", {"signature": half, "server": "x"}), ToolCall(half, half, half)
        yield ModelReply(parts=parts, model=half, finish="stop")

    [reply] = [item async for item in join_surrogates(said())]

    assert isinstance(reply, ModelReply)
    assert msgspec.json.decode(msgspec.json.encode(reply), type=ModelReply).model == "a\ufffd"
