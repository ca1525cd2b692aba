"""From a query to terms, and from terms to queries of the index."""

import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.model.errors import Invalid
from holdfast.store.search import trigrams
from holdfast.store.search.folding import fold

TEXT = st.text(st.characters(exclude_categories=()), max_size=20)


def forms(query: str) -> list[tuple[str, ...]]:
    return [term.forms for term in trigrams.parse_query(query)]


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
        ("é", [("e",)]),
        ("e\u0301", [("e",)]),
        ("\u0301 e", [("e",)]),
        ("が", [("が", "か\u3099")]),
        ("Straße", [("strasse",)]),
    ],
)
def test_a_query_is_words_and_quoted_phrases_and_nothing_else(query: str, expected: list[tuple[str, ...]]) -> None:
    assert forms(query) == expected


@pytest.mark.parametrize("query", ["", " ", "\n\t\u3000"])
def test_a_query_without_words_is_refused(query: str) -> None:
    with pytest.raises(Invalid, match="the query is empty"):
        trigrams.parse_query(query)


@given(TEXT, TEXT, TEXT)
def test_the_folding_of_a_substring_is_a_substring_of_the_folding(before: str, part: str, after: str) -> None:
    assert fold(before + part + after) == fold(before) + fold(part) + fold(after)


@pytest.mark.parametrize("query", ["\u0301", '"\u064b"'])
def test_a_query_of_nothing_but_accents_is_refused(query: str) -> None:
    with pytest.raises(Invalid, match="only accents"):
        trigrams.parse_query(query)


@given(TEXT)
def test_any_text_can_be_stored(text: str) -> None:
    stored = trigrams.pad_for_index(fold(text))

    stored.encode()
    assert "\0" not in stored


@given(TEXT, TEXT, TEXT)
def test_every_trigram_of_a_substring_is_a_trigram_of_the_text(before: str, part: str, after: str) -> None:
    whole = trigrams.pad_for_index(fold(before + part + after))

    assert all(gram in whole for gram in trigrams.trigrams(fold(part)))


@given(TEXT, TEXT, TEXT)
def test_every_character_of_a_substring_is_a_character_of_the_text(before: str, part: str, after: str) -> None:
    whole = fold(before + part + after)

    assert set(trigrams.letters(fold(part)).split()) <= set(trigrams.letters(whole).split())


def test_a_long_term_is_queried_by_a_sample_spread_over_it() -> None:
    term = "".join(chr(0x4E00 + i) for i in range(10_000))

    sample = trigrams.trigrams(term)

    assert len(sample) == trigrams.MAX_GRAMS
    assert (sample[0], sample[-1]) == (term[:3], term[-3:])


@pytest.mark.parametrize(("limit", "count"), [(1, 1), (2, 2), (16, 5)])
def test_the_number_of_queried_trigrams_is_limited(limit: int, count: int) -> None:
    assert len(trigrams.trigrams("abcdefg", limit)) == count


def test_nothing_in_a_quoted_term_is_special() -> None:
    assert trigrams.quoted('a"b') == '"a""b"'


def test_the_session_markers_are_single_terms() -> None:
    assert len(trigrams.mark_trigram("hf-1")) == trigrams.GRAM
    assert trigrams.mark_trigram("hf-1") != trigrams.mark_trigram("hf-2")
    assert trigrams.mark_word("hf-1").isalnum()
    assert not set(trigrams.letters("".join(map(chr, range(0x3000)))).split()) & {trigrams.mark_word("hf-1")}


@given(st.text(st.characters(exclude_categories=()), min_size=1, max_size=2), TEXT)
def test_the_range_of_terms_contains_every_term_with_the_prefix(form: str, rest: str) -> None:
    low, high = trigrams.term_range(form)
    term = (low + trigrams.storable(rest) + trigrams.END)[: trigrams.GRAM]

    assert low.encode() <= term.encode() <= high.encode()


@given(TEXT.filter(lambda text: fold(text).strip() and '"' not in text))
def test_composed_and_decomposed_characters_match_each_other(text: str) -> None:
    for form in ("NFC", "NFD"):
        stored = fold(unicodedata.normalize(form, text))
        assert trigrams.matches_all(stored, trigrams.parse_query(f'"{text}"'))
