"""The searchable text of an event: messages, reasoning, tool calls and results, titles, summaries."""

import json
from collections.abc import Iterator

from holdfast.model.event import Compacted, Event, ItemAdded, ModelSaid, SessionOpened, Titled, ToolEnded, UserSaid
from holdfast.model.framework.item import read_item
from holdfast.model.message import File, Part, Reasoning, ToolCall, text_of

ROLE, TOOL = "role:", "tool:"


def searchable(event: Event) -> str:
    """The searchable text of an event, visible text first. Empty for events without text.

    Changing this changes the index: increase its format number as well.
    """
    match event:
        case UserSaid() | ModelSaid() | ToolEnded():
            return "\n".join(piece for piece in _pieces(event.parts) if piece)
        case ItemAdded() if event.role:
            return "\n".join(piece for piece in _pieces(read_item(event.item, event.text)) if piece)
        case SessionOpened() | Titled():
            return event.title or ""
        case Compacted():
            return event.summary
        case _:
            return ""


def _pieces(parts: tuple[Part, ...]) -> Iterator[str]:
    """Visible text first, then the rest. Images have no text; files have their name."""
    yield text_of(parts)
    for part in parts:
        match part:
            case Reasoning():
                yield part.text
            case ToolCall():
                yield part.name
                yield from _arguments(part.arguments)
            case File():
                yield part.name


def _arguments(text: str) -> Iterator[str]:
    """The arguments as the model wrote them, after their unescaped strings if JSON escapes hide text."""
    if "\\" in text:
        try:
            yield from _strings(json.loads(text))
        except (ValueError, RecursionError):
            pass  # not JSON, or nested too deeply: index the text itself
    yield text


def _strings(value: object) -> Iterator[str]:
    waiting = [value]
    while waiting:
        match waiting.pop():
            case str() as text:
                yield text
            case list() as values:
                waiting.extend(reversed(values))
            case dict() as values:
                waiting.extend(reversed(values.values()))


def searched_as(event: Event) -> tuple[str, ...]:
    """The role and the tools of an event, by which a search can be limited: `role:NAME` and `tool:NAME`."""
    match event:
        case UserSaid():
            return (f"{ROLE}user",)
        case ModelSaid():
            return (f"{ROLE}assistant", *_tools(event.parts))
        case ToolEnded():
            return (f"{ROLE}tool", *((f"{TOOL}{event.name}",) if event.name else ()))
        case ItemAdded() if event.role:
            return (f"{ROLE}{event.role}", *_tools(read_item(event.item, event.text)))
        case _:
            return ()


def _tools(parts: tuple[Part, ...]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(f"{TOOL}{part.name}" for part in parts if isinstance(part, ToolCall)))
