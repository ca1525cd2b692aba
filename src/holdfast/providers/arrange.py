"""A context in the one shape that every vendor accepts; each wire format is written from this.

The shape: it begins with the user. Two messages of the user in a row are one. Each answer that calls tools
carries the result of each call. An answer without calls is followed by the user. It ends with the user or with
results. No text is blank, all text is UTF-8, and no two calls share an id.

Any sequence of messages gets this shape. What is missing is filled with a short remark in brackets, and what
cannot be sent is left out: a result without its call, an answer that says nothing, a call made by anybody but
the model. Messages added at the end change nothing before them, so that prompt caches hit.
"""

import hashlib
import re
from collections.abc import Iterable

import msgspec

from holdfast.model.message import Content, File, Image, Message, Outcome, Part, Reasoning, Text, ToolCall, ToolResult
from holdfast.providers.wire import clean

MIDDLE = "(The conversation begins in the middle.)"
GO_ON = "(Please go on.)"
EMPTY = "(An empty message.)"
NO_OUTPUT = "(no output)"
NO_RESULT = "No result of this call was recorded. It may or may not have acted: check before repeating it."

REMARK: dict[Outcome, str] = {
    "ok": "",
    "failed": "[failed]",
    "denied": "[denied]",
    "unknown": "[outcome unknown]",
}
"""What stands above a result that is not simply a success."""


class Call(msgspec.Struct, frozen=True, kw_only=True):
    """A call and its result. `id` is the one for the wire, `source` the one in the log."""

    id: str
    source: str
    name: str
    arguments: str
    result: ToolResult


class Said(msgspec.Struct, frozen=True):
    """The user's part; never empty."""

    parts: tuple[Content, ...]


class Answered(msgspec.Struct, frozen=True):
    """One answer of the model: what it thought and said, then what it called."""

    parts: tuple[Content | Reasoning, ...]
    calls: tuple[Call, ...]


Block = Said | Answered


def arrange(messages: Iterable[Message], ids: re.Pattern[str]) -> list[Block]:
    """The messages in the shape above. Ids of calls that do not match `ids` or come twice are replaced."""
    messages = tuple(messages)
    results = _pair(messages)
    names = _Names(ids)
    blocks: list[Block] = []
    for place, message in enumerate(messages):
        if message.role == "user":
            words = tuple(_visible(message.parts))
            if words or not any(isinstance(part, ToolResult) for part in message.parts):
                _say(blocks, words or (Text(EMPTY),))
        elif message.role == "assistant":
            calls = tuple(
                Call(id=names.make(call.id), source=call.id, name=call.name, arguments=call.arguments, result=result)
                for call, result in results.get(place, ())
            )
            _answer(blocks, tuple(_thought_and_said(message.parts)), calls)
    if not blocks or (isinstance(blocks[-1], Answered) and not blocks[-1].calls):
        _say(blocks, (Text(GO_ON if blocks else EMPTY),))
    return blocks


def result_parts(result: ToolResult) -> tuple[Content, ...]:
    """What the model is shown of a result; never empty, and marked when the call did not simply succeed."""
    remark = REMARK[result.outcome]
    parts = tuple(_visible(result.parts)) or (Text(NO_OUTPUT),)
    return (Text(remark), *parts) if remark else parts


def _pair(messages: tuple[Message, ...]) -> dict[int, list[tuple[ToolCall, ToolResult]]]:
    """For each answer its calls, each with the first result that names it and comes after it.

    An id that comes back in a later answer names the later call; twice in one answer, the results are in order.
    """
    calls: dict[int, list[ToolCall]] = {}
    found: dict[tuple[int, int], ToolResult] = {}
    waiting: dict[str, list[tuple[int, int]]] = {}
    for place, message in enumerate(messages):
        for part in message.parts:
            if isinstance(part, ToolCall) and message.role == "assistant":
                made = calls.setdefault(place, [])
                same = [call for call in waiting.get(part.id, []) if call[0] == place]
                waiting[part.id] = [*same, (place, len(made))]
                made.append(part)
            elif isinstance(part, ToolResult) and waiting.get(part.call_id):
                found[waiting[part.call_id].pop(0)] = part
    return {
        place: [(call, found.get((place, index)) or _lost(call)) for index, call in enumerate(made)]
        for place, made in calls.items()
    }


def _lost(call: ToolCall) -> ToolResult:
    return ToolResult(call.id, (Text(NO_RESULT),), "unknown")


def _visible(parts: Iterable[Part]) -> Iterable[Content]:
    for part in parts:
        if isinstance(part, Text):
            if part.text.strip():
                yield Text(clean(part.text))
        elif isinstance(part, Image | File):
            yield part


def _thought_and_said(parts: tuple[Part, ...]) -> Iterable[Content | Reasoning]:
    for part in parts:
        if isinstance(part, Reasoning):
            yield part
        else:
            yield from _visible((part,))


def _say(blocks: list[Block], parts: tuple[Content, ...]) -> None:
    last = blocks[-1] if blocks else None
    if isinstance(last, Said):
        blocks[-1] = Said(last.parts + parts)
    else:
        blocks.append(Said(parts))


def _answer(blocks: list[Block], parts: tuple[Content | Reasoning, ...], calls: tuple[Call, ...]) -> None:
    if not calls and all(isinstance(part, Reasoning) for part in parts):
        return
    if not blocks:
        blocks.append(Said((Text(MIDDLE),)))
    elif isinstance(blocks[-1], Answered) and not blocks[-1].calls:
        blocks.append(Said((Text(GO_ON),)))
    blocks.append(Answered(parts, calls))


class _Names:
    """Gives each call an id of its own, always the same one for the same calls in the same order."""

    def __init__(self, pattern: re.Pattern[str]) -> None:
        self._pattern = pattern
        self._given: set[str] = set()

    def make(self, wanted: str) -> str:
        name, count = wanted, 0
        while name in self._given or not self._pattern.fullmatch(name):
            digest = hashlib.sha256(f"{wanted}#{count}".encode("utf-8", "surrogatepass")).hexdigest()
            name, count = f"call_{digest[:24]}", count + 1
        self._given.add(name)
        return name
