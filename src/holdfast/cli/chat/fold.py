"""Long texts in short: the first and last lines, how much is between, and where to read all of it. Pure."""

import json

from holdfast.interop.visible import one_line
from holdfast.model.counted import counted
from holdfast.model.message import ToolCall

FIRST, LAST = 8, 3
LONGEST_LINE = 500
ARGUMENTS = 80
TELLING = ("command", "path", "pattern", "query", "action", "url")
"""Arguments that say by themselves what a call is about."""


def folded(text: str, where: str, *, first: int = FIRST, last: int = LAST) -> str:
    """The text if it is short; else its ends. `where` says how to see the rest."""
    lines = text.split("\n")
    while lines and not lines[-1].strip():
        del lines[-1]
    cut = len(lines) > first + last + 1
    kept = lines[:first] + lines[-last:] if cut else lines
    short = [line if len(line) <= LONGEST_LINE else f"{line[:LONGEST_LINE]}…" for line in kept]
    if cut:
        left = len(lines) - first - last
        short.insert(first, f"… {counted(left, 'more line')} ({where})")
    elif short != kept:
        short.append(f"… {len(text):,} characters in all ({where})")
    return "\n".join(short)


def call_line(call: ToolCall) -> str:
    """What a call is about, in a line: the one telling argument, or all of them."""
    try:
        arguments = json.loads(call.arguments)
    except (ValueError, RecursionError):
        arguments = call.arguments
    told = (
        next((arguments[name] for name in TELLING if name in arguments), None) if isinstance(arguments, dict) else None
    )
    text = one_line(told if isinstance(told, str) else call.arguments)
    short = text if len(text) <= ARGUMENTS else f"{text[:ARGUMENTS]}…"
    return f"{one_line(call.name)} {short}".strip()
