"""The text of what a program wrote for a terminal: without escape sequences and overwritten lines. Pure."""

import re

SEQUENCE = re.compile(r"\x1b(?:\][^\x07\x1b]*(?:\x07|\x1b\\)|\[[0-?]*[ -/]*[@-~]|[PX^_][^\x1b]*\x1b\\|[ -/]*[0-~])")
OVERWRITTEN = re.compile(r"[^\n]*\r(?=[^\n])")
"""What a progress bar has replaced."""
BACKSPACE = re.compile(r"[^\n\x08]\x08")


def plain_text(data: bytes | bytearray) -> str:
    """The text that a terminal would show at the end."""
    text = SEQUENCE.sub("", data.decode("utf-8", "replace")).replace("\r\n", "\n")
    text = OVERWRITTEN.sub("", text).replace("\r", "")
    while BACKSPACE.search(text):
        text = BACKSPACE.sub("", text)
    return re.sub(r"[\x00-\x08\x0b-\x1f\x7f]", "", text)
