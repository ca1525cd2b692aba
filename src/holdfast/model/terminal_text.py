"""The text of what a program wrote for a terminal: without escape sequences and overwritten lines. Pure."""

import re

SEQUENCE = re.compile(r"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)|\[[0-?]*[ -/]*[@-~]|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])")
CONTROL = re.compile(r"[\x00-\x08\x0b-\x1f\x7f]")


def plain_text(data: bytes | bytearray) -> str:
    """The text that a terminal would show at the end, in time that grows with the length of the data only."""
    text = SEQUENCE.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")
    if "\r" in text:
        text = "\n".join(line.rstrip("\r").rpartition("\r")[2] for line in text.split("\n"))
    return CONTROL.sub("", _without_erased(text) if "\b" in text else text)


def _without_erased(text: str) -> str:
    """The text without the characters that a backspace erases."""
    kept: list[str] = []
    for letter in text:
        if letter != "\b":
            kept.append(letter)
        elif kept and kept[-1] != "\n":
            kept.pop()
    return "".join(kept)
