"""Makes untrusted text safe to display: it can neither control a terminal nor reorder the text around it."""

import unicodedata

KEPT = "\n\t"
# Marks that change the direction of the text around them: https://trojansource.codes
TURNING = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C}
HIDDEN_CATEGORIES = {"Cc", "Cf", "Cs", "Co", "Cn", "Zl", "Zp", "Zs"}
"""Unicode categories of characters that are invisible or look like a space."""
# Characters that are drawn as nothing or as a blank although their category says otherwise.
BLANK = {
    0x034F,
    0x115F,
    0x1160,
    0x17B4,
    0x17B5,
    0x2800,
    0x3164,
    0xFFA0,
    *range(0xFE00, 0xFE10),
    *range(0xE0100, 0xE01F0),
}


class _Table(dict[int, str]):
    """Maps each character to its display form; filled on demand."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        control = code < 0x20 or 0x7F <= code <= 0x9F or code in (0x2028, 0x2029)
        hidden = control or code in TURNING or 0xD800 <= code <= 0xDFFF
        self[code] = escape(letter) if hidden and letter not in KEPT else letter
        return self[code]


class _ExactTable(dict[int, str]):
    """Like `_Table`, but also escapes every character that a person cannot distinguish by sight."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        hidden = code in BLANK or (letter != " " and unicodedata.category(letter) in HIDDEN_CATEGORIES)
        self[code] = escape(letter) if hidden and letter not in KEPT else letter
        return self[code]


_TABLE = _Table()
_EXACT = _ExactTable()


def escape(letter: str) -> str:
    return ascii(letter)[1:-1]


def visible(text: str) -> str:
    """The text with control and direction characters escaped, except line breaks and tabs."""
    return text.replace("\r\n", "\n").translate(_TABLE)


def exact(text: str) -> str:
    """For approvals: also escapes zero-width characters, unusual blanks and carriage returns."""
    return text.translate(_EXACT)


def exact_name(name: str) -> str:
    """A name or path, exact and on one line: it cannot imitate a line of its own."""
    return exact(name).replace("\n", "\\n").replace("\t", "\\t")


def one_line(text: str) -> str:
    """Like `visible`, on one line."""
    return visible(" ".join(text.split()))
