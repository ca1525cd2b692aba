"""The snippet of a hit."""

import itertools

from hypothesis import given
from hypothesis import strategies as st

from holdfast.store.search.folding import fold
from holdfast.store.search.snippet import LEAD, WIDTH, snippet
from holdfast.store.search.trigrams import SearchTerm, parse_query


def shown(text: str, query: str) -> tuple[str, list[str]]:
    line, marks = snippet(text, fold(text), parse_query(query))
    return line, [line[start:end] for start, end in marks]


def test_a_short_text_is_shown_completely_with_every_match_marked() -> None:
    assert shown("One fish, two FISH", "fish two") == ("One fish, two FISH", ["fish", "two", "FISH"])


def test_a_long_text_is_cut_at_a_word_before_the_first_match() -> None:
    text = "word " * 100 + "needle" + " tail" * 100

    line, marked = shown(text, "needle")

    assert line.startswith("…word word")
    assert line.endswith("…")
    assert marked == ["needle"]
    assert len(line) <= WIDTH + 2
    assert line.index("needle") <= LEAD + 1


def test_a_text_without_blanks_is_cut_where_it_must() -> None:
    line, marked = shown("x" * 500 + "针" + "y" * 500, "针")

    assert marked == ["针"]
    assert line == "…" + "x" * LEAD + "针" + "y" * (WIDTH - LEAD - 1) + "…"


def test_a_match_longer_than_the_snippet_is_marked_as_far_as_it_is_shown() -> None:
    line, marked = shown("before " + "abc" * 1000, "abc" * 900)

    assert marked == [line.removeprefix("before ").removesuffix("…")]


def test_characters_that_grow_when_folded_keep_the_marks_in_place() -> None:
    assert shown("ﬁß" * 5000 + " Straße ŉ end", "strasse END")[1] == ["Straße", "end"]
    assert shown("Maß", "s") == ("Maß", ["ß"])


def test_accents_keep_the_marks_in_place() -> None:
    assert shown("déjà vu, de\u0301ja\u0300 lu", "deja") == (
        "déjà vu, de\u0301ja\u0300 lu",
        ["déjà", "de\u0301ja\u0300"],
    )
    assert shown("e\u0301" * 300 + " Łódź", "lodz")[1] == ["Łódź"]


def test_characters_that_would_garble_a_list_become_one_blank() -> None:
    line, marked = shown("a\r\n\t b\x1b[31m\u202ec\ud800d \u2028 e", '"a\r\n\t b" e')

    assert line == "a b [31m c d e"
    assert marked == ["a b", "e"]


def test_joiners_and_new_pictographs_are_kept() -> None:
    text = "می\u200cخواهم 👩\u200d🚀 \U0001fae8"

    assert shown(text, "🚀")[0] == text


def test_a_match_of_blanks_is_marked() -> None:
    assert shown("a  \n b", '"  "') == ("a b", [" "])


LETTERS = st.sampled_from(["a", "A", "ß", "ﬁ", "İ", "é", "e\u0301", "中", " ", "\n", "\0", "\ud800", "🚀"])


@given(st.lists(LETTERS, max_size=400).map("".join), st.lists(LETTERS, min_size=1, max_size=300).map("".join), LETTERS)
def test_marks_are_within_the_snippet_in_order_and_disjoint(before: str, term: str, after: str) -> None:
    text = before + term + after
    line, marks = snippet(text, fold(text), [SearchTerm((fold(term),))])

    assert marks
    assert all(0 <= start < end <= len(line) for start, end in marks)
    assert all(left[1] < right[0] for left, right in itertools.pairwise(marks))
