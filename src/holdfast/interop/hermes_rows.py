"""The messages of one Hermes session, row by row: which are new, which repeat others, which are summaries or were undone."""

import hashlib
import json
from collections.abc import Iterator, Mapping

from holdfast.interop.foreign import (
    Copied,
    Fact,
    Heard,
    Replied,
    Returned,
    Said,
    Shortened,
    Skipped,
    TakenBack,
    instant,
    items,
    mapping,
    text,
    words,
)
from holdfast.model.message import Content, Image, Part, Reasoning, Text, ToolCall
from holdfast.store.foreign import Cell

PROVIDER = "hermes"
JSON_MARK = "\x00json:"
"""How content begins that is a list of parts."""
SUMMARY_MARKS = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]")
"""How Hermes begins a summary, in newer and in older releases."""
THOUGHTS = ("reasoning_content", "reasoning_details", "codex_reasoning_items", "codex_message_items")
Row = Mapping[str, Cell]


class Rows:
    """Takes row after row. A row that may repeat an older one is held back until that is certain."""

    def __init__(self) -> None:
        self._model = ""
        self._messages = 0
        self._keys: list[bytes] = []
        """What each message that stands is recognised by, in order; with its number in `_numbers`."""
        self._numbers: list[int] = []
        self._held: list[Row] = []
        """Rows that may repeat the first messages, or behind a summary the last ones."""
        self._undone: list[Said] = []
        self._summary: Row | None = None
        """The summary behind which the last messages may be repeated."""
        self._pinned: tuple[int, ...] = ()
        self._tails: list[int] = []
        """Where the repetition may have begun, as places in `_keys`."""
        self._repeated = 0
        """How many of the held rows are known to repeat the last messages."""
        self._is_new_context = False
        self._was_archived = False

    def begin(self, model: str) -> None:
        """The rows of one more session follow."""
        self._model = model
        self._is_new_context = self._messages > 0

    def take(self, row: Row) -> Iterator[Fact]:
        if row.get("active") == 0 and not row.get("compacted"):
            yield from self._undo(row)
            return
        yield from self._flush_undone()
        is_archived = row.get("active") == 0
        if self._was_archived and not is_archived:
            yield from self._settle()
            self._is_new_context = True
        self._was_archived = is_archived
        if self._summary is not None and self._repeats_the_end(row):
            return
        if self._summary is not None:
            yield from self._settle()
        yield from self._take(row)

    def end(self) -> Iterator[Fact]:
        yield from self._flush_undone()
        yield from self._settle()

    def _take(self, row: Row) -> Iterator[Fact]:
        place = len(self._held)
        if _is_summary(row):
            yield from self._shorten(row)
        elif place < len(self._keys) and _key(row) == self._keys[place]:
            self._held.append(row)
        elif self._is_new_context:  # a compaction whose summary does not look like one
            yield from self._shorten(None)
            if not self._repeats_the_end(row):
                yield from self._settle()
                yield from self._say(row)
        else:
            yield from self._settle()
            yield from self._say(row)

    # A shortened context: the first messages again, the summary, the last messages again.

    def _shorten(self, row: Row | None) -> Iterator[Fact]:
        self._pinned = tuple(self._numbers[: len(self._held)])
        if self._held:
            yield Copied(units=len(self._held))
        self._held = []
        self._summary = row if row is not None else {}
        self._tails = list(range(len(self._keys)))
        self._repeated = 0
        self._is_new_context = False

    def _repeats_the_end(self, row: Row) -> bool:
        """Hold the row if it goes on repeating the last messages."""
        key, offset = _key(row), len(self._held)
        if _is_summary(row):
            return False
        going_on = [p for p in self._tails if p + offset < len(self._keys) and self._keys[p + offset] == key]
        if not going_on:
            return False
        self._tails = going_on
        self._held.append(row)
        if any(p + offset + 1 == len(self._keys) for p in going_on):
            self._repeated = offset + 1
        return True

    def _settle(self) -> Iterator[Fact]:
        """Decide on the rows that were held back."""
        held, self._held = self._held, []
        if self._summary is not None:
            row, self._summary = self._summary, None
            first = len(self._numbers) - self._repeated
            upto = self._numbers[first] if self._repeated else -1
            summary = _summary_text(row)
            yield Shortened(
                at=instant(row.get("timestamp")), summary=summary, pinned=self._pinned, upto=upto, units=int(bool(row))
            )
            if self._repeated:
                yield Copied(units=self._repeated)
            held = held[self._repeated :]
        for row in held:
            yield from self._say(row)

    # Messages.

    def _say(self, row: Row) -> Iterator[Fact]:
        fact = _said(row, self._model)
        if isinstance(fact, Skipped):
            yield fact
            return
        self._keys.append(_key(row))
        self._numbers.append(self._messages)
        self._messages += 1
        yield fact

    def _undo(self, row: Row) -> Iterator[Fact]:
        yield from self._settle()
        fact = _said(row, self._model)
        if isinstance(fact, Skipped):
            yield fact
        else:
            self._undone.append(fact)

    def _flush_undone(self) -> Iterator[Fact]:
        if self._undone:
            self._messages += len(self._undone)
            yield TakenBack(at=self._undone[-1].at, said=tuple(self._undone))
            self._undone = []


def _is_summary(row: Row) -> bool:
    return row.get("role") != "tool" and text(row.get("content")).lstrip().startswith(SUMMARY_MARKS)


def _summary_text(row: Row) -> str:
    return "\n".join(part.text for part in _content(row.get("content")) if isinstance(part, Text))


def _key(row: Row) -> bytes:
    """What a row and its repetition have in common: a shortened context may have lost the output of tools."""
    role, call = text(row.get("role")), text(row.get("tool_call_id"))
    said = call if role == "tool" and call else f"{row.get('content')!r}\0{row.get('tool_calls')!r}"
    return hashlib.blake2b(f"{role}\0{said}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _said(row: Row, model: str) -> Said | Skipped:
    at, role, parts = instant(row.get("timestamp")), text(row.get("role")), _content(row.get("content"))
    match role:
        case "user":
            return Heard(at=at, parts=parts)
        case "system":
            return Heard(at=at, parts=parts, name="system")
        case "assistant":
            reply = (*_reasoning(row), *parts, *_calls(row.get("tool_calls")))
            return Replied(at=at, parts=reply, model=model, finish=text(row.get("finish_reason")))
        case "tool":
            name = text(row.get("tool_name"))
            return Returned(at=at, call_id=text(row.get("tool_call_id")), parts=parts, name=name)
        case _:
            return Skipped(at=at, why=f"a message of the role {role!r}")


def _content(value: object) -> tuple[Content, ...]:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    said = text(value)
    if not said.startswith(JSON_MARK):
        return words(said)
    parts = _json(said.removeprefix(JSON_MARK))
    if not isinstance(parts, list):
        return words(said.removeprefix(JSON_MARK))
    return tuple(_part(mapping(one)) for one in parts)


def _part(one: Mapping[str, object]) -> Content:
    given = one.get("image_url")
    url = text(given) or text(mapping(given).get("url"))
    if url.startswith(("data:", "http:", "https:")):
        return Image(url, detail=text(mapping(given).get("detail")))
    return Text(text(one.get("text")) or json.dumps(one))


def _json(value: str) -> object:
    """None for what is no JSON."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _reasoning(row: Row) -> tuple[Part, ...]:
    thought = text(row.get("reasoning")) or text(row.get("reasoning_content"))
    opaque = {name: kept for name in THOUGHTS if (kept := text(row.get(name))) and kept != thought}
    return (Reasoning(thought, PROVIDER, opaque),) if thought or opaque else ()


def _calls(value: object) -> Iterator[Part]:
    found = _json(text(value)) if value else []
    if value and not isinstance(found, list):
        yield Text(f"[calls that cannot be read]\n{value!s}")
    for one in map(mapping, items(found)):
        function = mapping(one.get("function")) or one
        given = function.get("arguments")
        arguments = given if isinstance(given, str) else json.dumps(given if given is not None else {})
        yield ToolCall(text(one.get("id")) or text(one.get("call_id")), text(function.get("name")), arguments)
