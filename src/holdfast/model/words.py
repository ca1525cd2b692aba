"""Which words of an event can be searched for: what was said, thought, called, returned, titled and summed up."""

import json
from collections.abc import Iterator

from holdfast.model.event import Compacted, Event, ModelSaid, SessionOpened, Titled, ToolEnded, UserSaid
from holdfast.model.message import File, Part, Reasoning, ToolCall, text_of


def searchable(event: Event) -> str:
    """The words of an event, those that a person sees first. Empty for events that carry none.

    A change here is a change of the index: raise the number of its format with it.
    """
    match event:
        case UserSaid() | ModelSaid() | ToolEnded():
            return "\n".join(piece for piece in _pieces(event.parts) if piece)
        case SessionOpened() | Titled():
            return event.title or ""
        case Compacted():
            return event.summary
        case _:
            return ""


def _pieces(parts: tuple[Part, ...]) -> Iterator[str]:
    """Text in one piece, as readers see it, then the rest. Pictures and files by reference have no words but a name."""
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
    """What the model wrote; before it, if JSON's escapes hide some of it, the strings that it stands for."""
    if "\\" in text:
        try:
            yield from _strings(json.loads(text))
        except (ValueError, RecursionError):
            pass  # not JSON, or nested without end: the text itself is all there is
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
