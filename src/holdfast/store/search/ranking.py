"""Ranks short texts by a query in any script, without an index: for facts, of which there are at most some hundreds. Pure.

A text that contains every word of the query, as in a search of sessions, comes first. The others follow by the parts
of words that they share with it, where rare ones count more.
"""

import re
from collections import Counter
from collections.abc import Sequence
from itertools import pairwise

from holdfast.store.search.folding import fold
from holdfast.store.search.trigrams import GRAM, matches_all, parse_query

WORDS = re.compile(r"[^\W_]+")
MAX_QUERY = 1_000
"""Characters of a query that are used."""
ENOUGH = 0.4
"""The share of a word's parts that a text needs, so that `testing` finds `tests` and `Kubernetes` does not."""


def rank(texts: Sequence[str], query: str) -> list[tuple[float, int]]:
    """The score and the index of each text that shares something with the query, the best first, among equals the last."""
    query = query[:MAX_QUERY]
    if not fold(query).strip():
        return []
    words, terms = [grams(word) for word in dict.fromkeys(WORDS.findall(fold(query)))], parse_query(query)
    folded = [fold(text) for text in texts]
    found = [_shared(words, text) for text in folded]
    frequency = Counter(gram for shared in found for gram in shared)
    scored = []
    for index, text in enumerate(folded):
        score = sum(1 / frequency[gram] for gram in sorted(found[index]))
        if matches_all(text, terms):
            score += len(texts) + sum(map(len, words))
        if score:
            scored.append((score, index))
    return sorted(scored, reverse=True)


def _shared(words: Sequence[set[str]], folded: str) -> set[str]:
    """The parts of the query's words that the text has, of words of which it has enough."""
    have = {gram for word in WORDS.findall(folded) for gram in grams(word)}
    shared: set[str] = set()
    for word in words:
        common = word & have
        if any(len(gram) < GRAM for gram in common) or len(common) >= ENOUGH * len(word):
            shared |= common
    return shared


def grams(word: str) -> set[str]:
    """The parts of a folded word: three characters each, or two where a script has no blanks between words."""
    size = GRAM if word.isascii() or _has_case(word) else GRAM - 1
    if len(word) <= size:
        return {word}
    if size == GRAM:
        return {word[start : start + GRAM] for start in range(len(word) - GRAM + 1)}
    return {first + second for first, second in pairwise(word)}


def _has_case(word: str) -> bool:
    return word.upper() != word
