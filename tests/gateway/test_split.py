"""Long texts in pieces: each fits, nothing is left out, code stays code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.gateway.split import split, utf8, utf16

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=400)


@given(TEXTS, st.integers(20, 200), st.sampled_from([len, utf16, utf8]))
def test_every_piece_fits_and_nothing_is_left_out(text: str, limit: int, measure: object) -> None:
    pieces = split(text, limit, measure)  # type: ignore[arg-type]

    assert pieces
    assert all(measure(piece) <= limit for piece in pieces) or not text.strip()  # type: ignore[operator]
    if "```" not in text and "~~~" not in text:
        assert "".join("".join(pieces).split()) == "".join(text.split())


def test_a_text_is_cut_between_paragraphs_before_lines_before_words() -> None:
    text = "one two three\nfour five\n\nsix seven eight nine"

    assert split(text, 30) == ["one two three\nfour five", "six seven eight nine"]
    assert split("alpha beta gamma delta", 12) == ["alpha beta", "gamma delta"]


def test_code_that_is_cut_is_closed_and_opened_again() -> None:
    code = "\n".join(f"line {number}" for number in range(20))
    pieces = split(f"See:\n```python\n{code}\n```\nDone.", 80)

    assert len(pieces) > 2
    assert all(piece.count("```") % 2 == 0 for piece in pieces)
    assert all(piece.startswith("```python\n") for piece in pieces[1:-1])
    assert [line for piece in pieces for line in piece.splitlines() if line.startswith("line")] == code.splitlines()


@pytest.mark.parametrize("text", ["👩‍👩‍👧‍👦" * 40, "e\u0301" * 200, "日本語" * 100])
def test_signs_that_belong_together_are_not_cut_apart(text: str) -> None:
    pieces = split(text, 50, utf16)

    assert "".join(pieces) == text
    assert not any(piece[0] in "\u200d\u0301" for piece in pieces)


def test_the_same_text_is_always_cut_the_same_way() -> None:
    text = "word " * 1000

    assert split(text, 100) == split(text, 100)
