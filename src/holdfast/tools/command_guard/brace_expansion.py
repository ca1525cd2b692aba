"""Expands the braces of a shell word, as in `{a,b}.txt` and `{a..c}`, which bash does before anything else."""

import re

from holdfast.tools.command_guard.shell_syntax import ShellWord, WordPart

MAX_WORDS = 64
MAX_LENGTH = 300
RANGE = re.compile(r"([A-Za-z])\.\.([A-Za-z])")
BraceChar = tuple[str, bool]
"""A character, and whether it can be part of a brace expression: it is neither quoted nor computed."""


def expand(word: ShellWord) -> list[ShellWord]:
    """The words that the braces of a word make. Nothing is changed if they cannot be known or are too many."""
    if len(word.text) > MAX_LENGTH or word.is_computed or not word.has_braces:
        return [word]
    chars = [(char, not part.is_quoted) for part in word.parts for char in part.text]
    expanded = _expand(chars)
    return [_word(one) for one in expanded] if len(expanded) <= MAX_WORDS else [word]


def _word(chars: list[BraceChar]) -> ShellWord:
    return ShellWord(tuple(WordPart(char, is_quoted=not is_plain) for char, is_plain in chars))


def _expand(chars: list[BraceChar]) -> list[list[BraceChar]]:
    start = 0
    while (start := _find(chars, "{", start)) >= 0:
        alternatives, end = _alternatives(chars, start)
        if alternatives:
            tails = _expand(chars[end:])
            heads = [one for alternative in alternatives for one in _expand(alternative)][: MAX_WORDS + 1]
            return [chars[:start] + head + tail for head in heads for tail in tails][: MAX_WORDS + 1]
        start += 1
    return [chars]


def _find(chars: list[BraceChar], char: str, start: int) -> int:
    return next((index for index in range(start, len(chars)) if chars[index] == (char, True)), -1)


def _alternatives(chars: list[BraceChar], start: int) -> tuple[list[list[BraceChar]], int]:
    """The alternatives in the braces that open at `start`, and where they end; empty if they do not close."""
    found: list[list[BraceChar]] = [[]]
    depth = 0
    for index in range(start, len(chars)):
        char, is_plain = chars[index]
        depth += {"{": 1, "}": -1}.get(char, 0) if is_plain else 0
        if not depth:
            return (found if len(found) > 1 else _range(found[0])), index + 1
        if char == "," and is_plain and depth == 1:
            found.append([])
        elif index > start:
            found[-1].append(chars[index])
    return [], start


def _range(chars: list[BraceChar]) -> list[list[BraceChar]]:
    found = RANGE.fullmatch("".join(char for char, _ in chars))
    if not found:
        return []
    first, last = sorted(ord(letter) for letter in found.groups())
    return [[(chr(number), True)] for number in range(first, last + 1)]
