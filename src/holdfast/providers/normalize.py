"""Normalizes a context to a form that every provider accepts; each request format is built from it.

The form: it starts with the user. Consecutive messages of one user are merged. Each answer with tool calls carries the
result of each call. An answer without calls is followed by the user. It ends with the user or with results. No
text is blank, all text is UTF-8, and call ids are unique.

Any sequence of messages can be normalized. Missing parts are filled with a short remark in brackets. Parts that
cannot be sent are dropped: a result without its call, an empty answer, a call that the model did not make.
Appending messages changes nothing before them, so that prompt caches hit.
"""

import hashlib
import re
from collections.abc import Iterable, Sequence

import msgspec

from holdfast.model.message import Content, File, Image, Message, Outcome, Part, Reasoning, Text, ToolCall, ToolResult
from holdfast.providers.sanitize import clean

START_MISSING = "(The start of the conversation is missing.)"
CONTINUE = "(Please continue.)"
EMPTY = "(An empty message.)"
NO_OUTPUT = "(no output)"
NO_RESULT = "No result of this call was recorded. It may or may not have acted: check before repeating it."

REMARK: dict[Outcome, str] = {
    "ok": "",
    "failed": "[failed]",
    "denied": "[denied]",
    "unknown": "[outcome unknown]",
}
"""The first line of a result that is not a success."""


class CallWithResult(msgspec.Struct, frozen=True, kw_only=True):
    """A call and its result. `id` is the one in the request, `source` the one in the log."""

    id: str
    source: str
    name: str
    arguments: str
    result: ToolResult


class UserBlock(msgspec.Struct, frozen=True):
    """The content of the user; never empty."""

    parts: tuple[Content, ...]
    name: str = ""


class ModelBlock(msgspec.Struct, frozen=True):
    """One answer of the model: reasoning and content, then tool calls."""

    parts: tuple[Content | Reasoning, ...]
    calls: tuple[CallWithResult, ...]


Block = UserBlock | ModelBlock


def normalize(messages: Sequence[Message], ids: "CallIds", *, is_end: bool = True) -> list[Block]:
    """The messages in the form above. Without `is_end`, other messages follow and may end an answer."""
    results = _pair_results(messages)
    blocks: list[Block] = []
    for index, message in enumerate(messages):
        if message.role == "user":
            content = tuple(_content(message.parts))
            if content or not any(isinstance(part, ToolResult) for part in message.parts):
                _add_user(blocks, content or (Text(EMPTY),), message.name)
        elif message.role == "assistant":
            calls = tuple(
                CallWithResult(
                    id=ids.make(call.id), source=call.id, name=call.name, arguments=call.arguments, result=result
                )
                for call, result in results.get(index, ())
            )
            _add_answer(blocks, tuple(_reasoning_and_content(message.parts)), calls)
    if is_end and (not blocks or (isinstance(blocks[-1], ModelBlock) and not blocks[-1].calls)):
        _add_user(blocks, (Text(CONTINUE if blocks else EMPTY),))
    return blocks


def settled_indexes(messages: Sequence[Message], start: int) -> list[int]:
    """The indexes from `start` on at which the messages can be split, so that both parts can be normalized separately.

    Before such an index each call has its result, and the last message is an answer without calls. At the index is a
    user message. Nothing that is appended later can change what is before it.
    """
    indexes: list[int] = []
    waiting: set[str] = set()
    for index in range(start, len(messages)):
        message = messages[index]
        if index > start and not waiting and begins_exchange(message) and _is_plain_answer(messages[index - 1]):
            indexes.append(index)
        for part in message.parts:
            if isinstance(part, ToolCall) and message.role == "assistant":
                waiting.add(part.id)
            elif isinstance(part, ToolResult):
                waiting.discard(part.call_id)
    return indexes


def begins_exchange(message: Message) -> bool:
    """Whether this is a message of the user that does not belong to calls."""
    return message.role == "user" and not any(isinstance(part, ToolResult) for part in message.parts)


def _is_plain_answer(message: Message) -> bool:
    return (
        message.role == "assistant"
        and not any(isinstance(part, ToolCall) for part in message.parts)
        and any(True for _ in _content(message.parts))
    )


def result_parts(result: ToolResult) -> tuple[Content, ...]:
    """The content of a result for the model; never empty, and marked if the call did not succeed."""
    remark = REMARK[result.outcome]
    parts = tuple(_content(result.parts)) or (Text(NO_OUTPUT),)
    return (Text(remark), *parts) if remark else parts


def _pair_results(messages: Sequence[Message]) -> dict[int, list[tuple[ToolCall, ToolResult]]]:
    """For each answer its calls, each with the first later result that has its id.

    An id that is reused in a later answer means the later call; used twice in one answer, results are matched in order.
    """
    calls: dict[int, list[ToolCall]] = {}
    found: dict[tuple[int, int], ToolResult] = {}
    waiting: dict[str, list[tuple[int, int]]] = {}
    for index, message in enumerate(messages):
        for part in message.parts:
            if isinstance(part, ToolCall) and message.role == "assistant":
                made = calls.setdefault(index, [])
                same = [call for call in waiting.get(part.id, []) if call[0] == index]
                waiting[part.id] = [*same, (index, len(made))]
                made.append(part)
            elif isinstance(part, ToolResult) and waiting.get(part.call_id):
                found[waiting[part.call_id].pop(0)] = part
    return {
        index: [(call, found.get((index, n)) or _missing_result(call)) for n, call in enumerate(made)]
        for index, made in calls.items()
    }


def _missing_result(call: ToolCall) -> ToolResult:
    return ToolResult(call.id, (Text(NO_RESULT),), "unknown")


def _content(parts: Iterable[Part]) -> Iterable[Content]:
    for part in parts:
        if isinstance(part, Text):
            if part.text.strip():
                yield Text(clean(part.text))
        elif isinstance(part, Image | File):
            yield part


def _reasoning_and_content(parts: tuple[Part, ...]) -> Iterable[Content | Reasoning]:
    for part in parts:
        if isinstance(part, Reasoning):
            yield part
        else:
            yield from _content((part,))


def _add_user(blocks: list[Block], parts: tuple[Content, ...], name: str = "") -> None:
    last = blocks[-1] if blocks else None
    if isinstance(last, UserBlock) and last.name == name:
        blocks[-1] = UserBlock(last.parts + parts, name)
    else:
        blocks.append(UserBlock(parts, name))


def _add_answer(blocks: list[Block], parts: tuple[Content | Reasoning, ...], calls: tuple[CallWithResult, ...]) -> None:
    if not calls and all(isinstance(part, Reasoning) for part in parts):
        return
    if not blocks:
        blocks.append(UserBlock((Text(START_MISSING),)))
    elif isinstance(blocks[-1], ModelBlock) and not blocks[-1].calls:
        blocks.append(UserBlock((Text(CONTINUE),)))
    blocks.append(ModelBlock(parts, calls))


class CallIds:
    """Gives each call a unique id that matches the pattern, always the same one for the same calls in the same order."""

    def __init__(self, pattern: re.Pattern[str], before: "CallIds | None" = None) -> None:
        """The ids that `before` has given are taken."""
        self._pattern = pattern
        self._before = before
        self._given: set[str] = set()

    def make(self, wanted: str) -> str:
        name, count = wanted, 0
        while self._has(name) or not self._pattern.fullmatch(name):
            digest = hashlib.sha256(f"{wanted}#{count}".encode("utf-8", "surrogatepass")).hexdigest()
            name, count = f"call_{digest[:24]}", count + 1
        self._given.add(name)
        return name

    def add(self, later: "CallIds") -> None:
        self._given |= later._given

    def _has(self, name: str) -> bool:
        return name in self._given or (self._before is not None and self._before._has(name))
