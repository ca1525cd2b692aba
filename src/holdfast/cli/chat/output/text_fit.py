"""Fits text into a terminal: cuts, wraps and shortens it. Pure."""

import json
import textwrap

from prompt_toolkit.utils import get_cwidth

from holdfast.model.message import ToolCall
from holdfast.model.sanitize import one_line
from holdfast.model.text import counted, truncate

FIRST, LAST = 8, 3
LONGEST_LINE = 500
ARGUMENTS = 80
KEY_ARGUMENTS = ("command", "path", "pattern", "query", "action", "url")
"""Arguments that describe a call by themselves."""


def fit(text: str, width: int) -> str:
    """The text, cut at the end with an ellipsis if it is too wide."""
    if get_cwidth(text) <= width:
        return text
    while text and get_cwidth(text) >= width:
        text = text[:-1]
    return f"{text.rstrip()}…"


def fit_end(text: str, width: int) -> str:
    """The text, cut at the start with an ellipsis if it is too wide."""
    return text if get_cwidth(text) <= width else f"…{text[-width + 1 :]}"


def wrap(text: str, width: int) -> str:
    """A line, wrapped between words."""
    return "\n".join(textwrap.wrap(text, width, break_on_hyphens=False))


def dim(text: str, width: int) -> str:
    """Plain lines, wrapped and dimmed, without loading the Markdown renderer."""
    lines = [piece for line in text.split("\n") for piece in textwrap.wrap(line, width) or [""]]
    return "".join(f"\x1b[2m{line}\x1b[0m\n" for line in lines)


def shorten(text: str, where: str, *, first: int = FIRST, last: int = LAST) -> str:
    """A short text as it is; otherwise its first and last lines. `where` says how to see the rest."""
    lines = text.split("\n")
    while lines and not lines[-1].strip():
        del lines[-1]
    cut = len(lines) > first + last + 1
    kept = lines[:first] + lines[-last:] if cut else lines
    short = [truncate(line, LONGEST_LINE) for line in kept]
    if cut:
        left = len(lines) - first - last
        short.insert(first, f"… {counted(left, 'more line')} ({where})")
    elif short != kept:
        short.append(f"… {len(text):,} characters in all ({where})")
    return "\n".join(short)


def call_line(call: ToolCall) -> str:
    """A call in one line: its key argument, or all arguments."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments
    key_argument = (
        next((arguments[name] for name in KEY_ARGUMENTS if name in arguments), None)
        if isinstance(arguments, dict)
        else None
    )
    text = one_line(key_argument if isinstance(key_argument, str) else call.arguments)
    return f"{one_line(call.name)} {truncate(text, ARGUMENTS)}".strip()
