"""Repairs surrogates: JSON can escape them one by one, but UTF-8 cannot encode a lone one."""

import re

_half = re.compile("[\ud800-\udfff]")


def repair_text(text: str) -> str:
    """The text with surrogate pairs joined and each lone surrogate replaced by U+FFFD."""
    if text.isascii() or _half.search(text) is None:
        return text
    return text.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "replace")


def repair_json(value: object) -> object:
    """The same JSON value with the surrogates of every string repaired, keys included."""
    match value:
        case str():
            return repair_text(value)
        case dict():
            return {repair_json(key): repair_json(one) for key, one in value.items()}
        case list() | tuple():
            return [repair_json(one) for one in value]
        case _:
            return value


class SurrogateJoiner:
    """Joins surrogate pairs that are split between two chunks of a stream."""

    def __init__(self) -> None:
        self._first_half = ""

    def add(self, piece: str) -> str:
        """The text that is complete; a high surrogate at the end waits for the next chunk."""
        text, self._first_half = self._first_half + piece, ""
        if text and "\ud800" <= text[-1] <= "\udbff":
            text, self._first_half = text[:-1], text[-1]
        return repair_text(text)
