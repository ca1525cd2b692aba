"""Splitting long texts: each piece fits, nothing is dropped, code stays code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.gateway.split import split, utf8_length, utf16_length

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=400)


@given(TEXTS, st.integers(20, 200), st.sampled_from([len, utf16_length, utf8_length]))
def test_every_piece_fits_and_nothing_is_dropped(text: str, limit: int, measure: object) -> None:
    pieces = split(text, limit, measure)  # type: ignore[arg-type]

    assert pieces
    assert all(measure(piece) <= limit for piece in pieces) or not text.strip()  # type: ignore[operator]
    if "```" not in text and "~~~" not in text:
        assert "".join("".join(pieces).split()) == "".join(text.split())


def test_a_text_is_cut_between_paragraphs_before_lines_before_words() -> None:
    text = "one two three\nfour five\n\nsix seven eight nine"

    assert split(text, 30) == ["one two three\nfour five", "six seven eight nine"]
    assert split("alpha beta gamma delta", 12) == ["alpha beta", "gamma delta"]


def test_a_code_block_that_is_cut_is_closed_and_opened_again() -> None:
    code = "\n".join(f"line {number}" for number in range(20))
    pieces = split(f"See:\n```python\n{code}\n```\nDone.", 80)

    assert len(pieces) > 2
    assert all(piece.count("```") % 2 == 0 for piece in pieces)
    assert all(piece.startswith("```python\n") for piece in pieces[1:-1])
    assert [line for piece in pieces for line in piece.splitlines() if line.startswith("line")] == code.splitlines()


@pytest.mark.parametrize("text", ["👩‍👩‍👧‍👦" * 40, "e\u0301" * 200, "日本語" * 100])
def test_combined_characters_are_not_cut(text: str) -> None:
    pieces = split(text, 50, utf16_length)

    assert "".join(pieces) == text
    assert not any(piece[0] in "\u200d\u0301" for piece in pieces)


def test_the_same_text_is_always_cut_the_same_way() -> None:
    text = "word " * 1000

    assert split(text, 100) == split(text, 100)
