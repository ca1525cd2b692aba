"""Words with one typo: a letter too many, too few, wrong, or exchanged with its neighbour. Pure.

Only words of at least four letters in scripts that separate words may have one; numbers and code must be exact.
"""

import re
from collections.abc import Iterator

ANY = "\ufdd0"
"""Stands for any one character in a variant. It is a noncharacter, which no text has."""
SHORTEST = 4
LONGEST = 64
"""Letters of the longest word that may have a typo: the cost of its variants grows with the square."""
FROM_PREFIX = 6
"""Words from this length on also match the beginning of a longer word."""
GRAM = 3
WORD = re.compile(r"[^\W\d_]+")
_UNSPACED = re.compile(
    "[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af\U00020000-\U0003ffff]"
)


def may_have_typo(word: str) -> bool:
    """Whether a folded word of a query may be matched with a typo."""
    return SHORTEST <= len(word) <= LONGEST and WORD.fullmatch(word) is not None and _UNSPACED.search(word) is None


def variants(word: str) -> tuple[str, ...]:
    """Patterns of which each word with one typo contains one, apart from those that no index could narrow down."""
    found: list[str] = []
    for at in range(len(word)):
        head, tail = word[:at], word[at + 1 :]
        found += [head + ANY + tail, head + tail]
        if at:
            found.append(head + ANY + word[at:])
        if tail:
            found.append(head + tail[0] + word[at] + tail[1:])
    return tuple(one for one in dict.fromkeys(found) if any(len(piece) >= GRAM for piece in one.split(ANY)))


def similar_words(word: str, folded: str) -> Iterator[str]:
    """The words of a folded text that are this word with at most one typo, or begin with it."""
    shortest = len(word) - 1
    for found in set(WORD.findall(folded)):
        if len(found) >= shortest and _is_similar(word, found):
            yield found


def _is_similar(word: str, found: str) -> bool:
    if differs_by_one(word, found):
        return True
    if len(found) <= len(word) or len(word) < FROM_PREFIX or found[0] != word[0]:
        return False
    return any(differs_by_one(word, found[: len(word) + more]) for more in (-1, 0, 1))


def differs_by_one(one: str, other: str) -> bool:
    """Whether there is at most one typo between two words."""
    if abs(len(one) - len(other)) > 1:
        return False
    start = 0
    while start < min(len(one), len(other)) and one[start] == other[start]:
        start += 1
    end = 0
    while end < min(len(one), len(other)) - start and one[-1 - end] == other[-1 - end]:
        end += 1
    left, right = one[start : len(one) - end], other[start : len(other) - end]
    return (len(left) <= 1 and len(right) <= 1) or (len(left) == 2 and left == right[::-1])
