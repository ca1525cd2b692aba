"""Text that others wrote, made safe to show: it can neither steer a terminal nor reorder what stands beside it."""

KEPT = "\n\t"
# Marks that change the direction of the text around them: https://trojansource.codes
TURNING = {*range(0x202A, 0x202F), *range(0x2066, 0x206A), 0x200E, 0x200F, 0x061C}


class _Table(dict[int, str]):
    """What each character is shown as; fills itself as characters are met."""

    def __missing__(self, code: int) -> str:
        letter = chr(code)
        control = code < 0x20 or 0x7F <= code <= 0x9F or code in (0x2028, 0x2029)
        hidden = control or code in TURNING or 0xD800 <= code <= 0xDFFF
        self[code] = ascii(letter)[1:-1] if hidden and letter not in KEPT else letter
        return self[code]


_TABLE = _Table()


def visible(text: str) -> str:
    """The text with everything that cannot be seen written out, line breaks and tabs apart."""
    return text.replace("\r\n", "\n").translate(_TABLE)


def one_line(text: str) -> str:
    """The same on one line."""
    return visible(" ".join(text.split()))
