"""Words with one typo, and the patterns that find them in an index."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.store.search import typos

WORDS = st.text("abcdé", min_size=6, max_size=9)


@pytest.mark.parametrize(
    ("typed", "meant"),
    [
        ("recieve", "receive"),
        ("confguration", "configuration"),
        ("serrver", "server"),
        ("datebase", "database"),
        ("sarver", "servers"),
        ("migratoin", "migrations"),
        ("приевт", "привет"),
        ("καλημερρα", "καλημερα"),
    ],
)
def test_one_typo_is_tolerated(typed: str, meant: str) -> None:
    assert [*typos.similar_words(typed, f"before {meant} after")] == [meant]


@pytest.mark.parametrize(("typed", "other"), [("abcdef", "badcfe"), ("house", "mouth"), ("cart", "carpet")])
def test_two_typos_are_not(typed: str, other: str) -> None:
    assert [*typos.similar_words(typed, other)] == []


@pytest.mark.parametrize("word", ["abc", "123456789", "a1b2c3", "foo_bar", "日本語学習", "x->y", "สวัสดี", "a" * 20_000])
def test_short_and_endless_words_numbers_code_and_unspaced_scripts_must_be_exact(word: str) -> None:
    assert not typos.may_have_typo(word)


@given(WORDS, st.integers(0, 8), st.sampled_from("abcdé"), st.sampled_from(["change", "add", "drop", "swap"]))
def test_every_word_with_one_typo_contains_a_variant(word: str, at: int, letter: str, what: str) -> None:
    at %= len(word)
    changed = {
        "change": word[:at] + letter + word[at + 1 :],
        "add": word[:at] + letter + word[at:],
        "drop": word[:at] + word[at + 1 :],
        "swap": word[:at] + word[at : at + 2][::-1] + word[at + 2 :],
    }[what]

    assert typos.differs_by_one(word, changed)
    patterns = [word, *typos.variants(word)]
    assert any(re.search(re.escape(one).replace(typos.ANY, "."), changed) for one in patterns)
