"""Folds text for searching: case, accents and similar marks make no difference. Pure.

It folds character by character, so that a folded substring is always a substring of the folded text. Marks that only say
how a letter is read are left out: accents of Latin, Greek and Cyrillic letters, Hebrew points, Arabic vowels. Marks that
are letters of their own stay: vowel signs of Indic scripts, and the voicing of kana.
"""

import unicodedata

CHUNK = 1 << 16
"""Characters folded at once: each takes twelve bytes of memory, and no other thread can run meanwhile."""

_MARKS = (
    (0x0300, 0x036F),
    (0x0483, 0x0487),
    (0x0591, 0x05BD),
    (0x05BF, 0x05BF),
    (0x05C1, 0x05C2),
    (0x05C4, 0x05C5),
    (0x05C7, 0x05C7),
    (0x0610, 0x061A),
    (0x0640, 0x0640),
    (0x064B, 0x065F),
    (0x0670, 0x0670),
    (0x06D6, 0x06DC),
    (0x1AB0, 0x1AFF),
    (0x1DC0, 0x1DFF),
    (0x20D0, 0x20F0),
    (0xFE20, 0xFE2F),
)
"""Ranges of characters that are left out."""
_LETTERS = {
    "ı": "i",
    "ł": "l",
    "ø": "o",
    "đ": "d",
    "ħ": "h",
    "ŧ": "t",
    "ð": "d",
    "þ": "th",
    "æ": "ae",
    "œ": "oe",
}
"""Letters that people also write without their stroke or as two letters, and that Unicode does not decompose."""


def _is_mark(letter: str) -> bool:
    return any(first <= ord(letter) <= last for first, last in _MARKS)


def _fold_letter(letter: str) -> str:
    """The folding of one character."""
    folded = letter.casefold()
    parts = unicodedata.normalize("NFD", folded)
    if any(map(_is_mark, parts)):
        folded = "".join(part for part in parts if not _is_mark(part))
    return "".join(_LETTERS.get(part, part) for part in folded)


class _FoldTable(dict[int, str]):
    """Foldings by character, filled as they are needed. There are as many as characters that were seen, at most 1.1 million."""

    def __missing__(self, code: int) -> str:
        folded = self[code] = _fold_letter(chr(code))
        return folded


_table = _FoldTable()


def fold(text: str) -> str:
    """The folded text."""
    if text.isascii():
        return text.lower()
    if len(text) <= CHUNK:
        return text.translate(_table)
    return "".join([text[start : start + CHUNK].translate(_table) for start in range(0, len(text), CHUNK)])
