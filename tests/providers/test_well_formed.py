"""Deltas that arrive together are shown together, and no text is lost."""

from collections.abc import Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import BadReply
from holdfast.model.provider import Delta, ReasoningDelta, TextDelta
from holdfast.providers.well_formed import merge_deltas


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
