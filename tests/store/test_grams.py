"""From a query to needles, and from needles to what the index is asked."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import Invalid
from holdfast.store import grams

TEXT = st.text(st.characters(exclude_categories=()), max_size=20)


def forms(query: str) -> list[tuple[str, ...]]:
    return [needle.forms for needle in grams.needles(query)]


@pytest.mark.parametrize(
    ("query", "expected"),
    [
        ("Hello  world\n", [("hello",), ("world",)]),
        ('"Hello  world" again', [("hello  world",), ("again",)]),
        ('" "', [(" ",)]),
        ('print("hi")', [('print("hi")',)]),
        ('"never closed', [('"never',), ("closed",)]),
        ('""', [('""',)]),
        ('""quoted""', [('"quoted"',)]),
        ("again again", [("again",)]),
        ("a* OR (b) NEAR -c ^d text:e", [(w,) for w in ("a*", "or", "(b)", "near", "-c", "^d", "text:e")]),
        ("é", [("é", "e\u0301")]),
        ("e\u0301", [("e\u0301", "é")]),
        ("Straße", [("strasse",)]),
    ],
)
def test_a_query_is_words_and_quoted_phrases_and_nothing_else(query: str, expected: list[tuple[str, ...]]) -> None:
    assert forms(query) == expected


@pytest.mark.parametrize("query", ["", " ", "\n\t\u3000"])
def test_a_query_without_words_is_refused(query: str) -> None:
    with pytest.raises(Invalid, match="nothing to search for"):
        grams.needles(query)


@given(TEXT, TEXT, TEXT)
def test_the_folding_of_a_part_is_a_part_of_the_folding(before: str, part: str, after: str) -> None:
    assert grams.fold(before + part + after) == grams.fold(before) + grams.fold(part) + grams.fold(after)


def test_every_letter_folds_to_something_that_folds_no_further() -> None:
    for code in range(0x110000):
        folded = chr(code).casefold()
        assert folded
        assert folded.casefold() == folded


def test_a_long_text_is_folded_as_a_short_one_is() -> None:
    text = "ÄßxŉΣ" * grams.CHUNK

    assert grams.fold(text) == text.casefold()


@given(TEXT)
def test_any_text_can_be_stored(text: str) -> None:
    stored = grams.indexed(grams.fold(text))

    stored.encode()
    assert "\0" not in stored


@given(TEXT, TEXT, TEXT)
def test_every_trigram_of_a_part_is_one_of_the_text(before: str, part: str, after: str) -> None:
    whole = grams.indexed(grams.fold(before + part + after))

    assert all(gram in whole for gram in grams.trigrams(grams.fold(part)))


@given(TEXT, TEXT, TEXT)
def test_every_letter_of_a_part_is_one_of_the_text(before: str, part: str, after: str) -> None:
    whole = grams.fold(before + part + after)

    assert set(grams.letters(grams.fold(part)).split()) <= set(grams.letters(whole).split())


def test_a_long_needle_is_asked_for_by_a_sample_from_all_over_it() -> None:
    needle = "".join(chr(0x4E00 + i) for i in range(10_000))

    sample = grams.trigrams(needle)

    assert len(sample) == grams.MAX_GRAMS
    assert (sample[0], sample[-1]) == (needle[:3], needle[-3:])


@pytest.mark.parametrize(("limit", "count"), [(1, 1), (2, 2), (16, 5)])
def test_no_more_trigrams_are_asked_for_than_allowed(limit: int, count: int) -> None:
    assert len(grams.trigrams("abcdefg", limit)) == count


def test_nothing_in_a_quoted_term_is_special() -> None:
    assert grams.quoted('a"b') == '"a""b"'


def test_the_badges_of_sessions_are_single_terms() -> None:
    assert len(grams.badge("hf-1")) == grams.GRAM
    assert grams.badge("hf-1") != grams.badge("hf-2")
    assert grams.badge_word("hf-1").isalnum()
    assert not set(grams.letters("".join(map(chr, range(0x3000)))).split()) & {grams.badge_word("hf-1")}


@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=2), TEXT)
def test_the_range_of_terms_holds_every_term_that_begins_so(form: str, rest: str) -> None:
    low, high = grams.term_range(form)
    term = (low + grams.storable(rest) + grams.END)[: grams.GRAM]

    assert low.encode() <= term.encode() <= high.encode()


@given(TEXT.filter(lambda text: text.strip() and '"' not in text))
def test_composed_and_decomposed_letters_find_each_other(text: str) -> None:
    for form in ("NFC", "NFD"):
        stored = grams.fold(unicodedata.normalize(form, text))
        assert grams.holds(stored, grams.needles(f'"{text}"'))
