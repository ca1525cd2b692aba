"""How wide text is in a terminal, and cutting it to fit."""

import textwrap

from prompt_toolkit.utils import get_cwidth


def fit(text: str, width: int) -> str:
    """The text, or as much of it as fits with a mark that something is missing."""
    if get_cwidth(text) <= width:
        return text
    while text and get_cwidth(text) >= width:
        text = text[:-1]
    return f"{text.rstrip()}…"


def fit_end(text: str, width: int) -> str:
    """As `fit`, for what is told by its end."""
    return text if get_cwidth(text) <= width else f"…{text[-width + 1 :]}"


def wrapped(text: str, width: int) -> str:
    """A line, broken between words where it does not fit."""
    return "\n".join(textwrap.wrap(text, width, break_on_hyphens=False))


def faint(text: str, width: int) -> str:
    """Some plain lines, wrapped and dimmed: what is shown first need not wait for all that draws Markdown."""
    lines = [piece for line in text.split("\n") for piece in textwrap.wrap(line, width) or [""]]
    return "".join(f"\x1b[2m{line}\x1b[0m\n" for line in lines)
