"""Short texts are ranked by a query: those with all words first, then those that share rare parts of words."""

from hypothesis import given
from hypothesis import strategies as st

from holdfast.store.search.ranking import rank

TEXTS = [
    "The user prefers Python.",
    "The user likes green tea.",
    "用户喜欢喝乌龙茶",
    "The tests of the project need tea.",
]


def best(query: str) -> list[str]:
    return [TEXTS[index] for _, index in rank(TEXTS, query)]


def test_all_words_come_first_and_then_shared_parts() -> None:
    assert best("tea user")[0] == TEXTS[1]
    assert best("programming in PYTHON")[0] == TEXTS[0]
    assert best("乌龙")[0] == TEXTS[2]
    assert best("喜欢什么茶")[0] == TEXTS[2]
    assert best("testing")[0] == TEXTS[3], "a part of a word is enough"


def test_nothing_shared_is_nothing_found() -> None:
    assert best("Kubernetes") == []
    assert best(" ") == []
    assert rank([], "tea") == []


def test_among_equals_the_last_comes_first() -> None:
    assert [index for _, index in rank(["tea", "tea", "tea"], "tea")] == [2, 1, 0]


@given(st.lists(st.text(), max_size=20), st.text())
def test_every_text_that_contains_the_query_is_found(texts: list[str], query: str) -> None:
    found = {index for _, index in rank(texts, query)}

    assert all(index in found for index, text in enumerate(texts) if query.strip() and query.strip() in text)
