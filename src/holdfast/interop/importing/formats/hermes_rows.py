"""Reads the messages of one Hermes session row by row: new ones, repeated ones, summaries and undone ones."""

import hashlib
import json
from collections.abc import Iterator, Mapping

from holdfast.interop.importing.facts import (
    Fact,
    ImportedCompaction,
    ImportedInput,
    ImportedMessage,
    ImportedReply,
    ImportedResult,
    ImportedWithdrawal,
    RepeatedLines,
    SkippedLines,
    as_list,
    as_mapping,
    as_text,
    as_time,
    text_parts,
)
from holdfast.model.message import Content, Image, Part, Reasoning, Text, ToolCall
from holdfast.store.sqlite.foreign_reader import Cell

PROVIDER = "hermes"
JSON_MARK = "\x00json:"
"""The prefix of content that is a list of parts."""
SUMMARY_MARKS = ("[CONTEXT COMPACTION", "[CONTEXT SUMMARY]")
"""The prefixes of a summary, in newer and in older releases."""
THOUGHTS = ("reasoning_content", "reasoning_details", "codex_reasoning_items", "codex_message_items")
Row = Mapping[str, Cell]


class HermesRows:
    """Converts row after row. A row that may repeat an older one is held until that is certain."""

    def __init__(self) -> None:
        self._model = ""
        self._messages = 0
        self._keys: list[bytes] = []
        """The keys of the messages that were not undone, in order; their numbers are in `_numbers`."""
        self._numbers: list[int] = []
        self._held: list[Row] = []
        """Rows that may repeat the first messages or, after a summary, the last ones."""
        self._undone: list[ImportedMessage] = []
        self._summary: Row | None = None
        """The summary after which the last messages may be repeated."""
        self._pinned: tuple[int, ...] = ()
        self._tails: list[int] = []
        """Where the repetition may start, as positions in `_keys`."""
        self._repeated = 0
        """How many of the held rows are known to repeat the last messages."""
        self._is_new_context = False
        self._was_archived = False

    def begin(self, model: str) -> None:
        """Start the rows of another session."""
        self._model = model
        self._is_new_context = self._messages > 0

    def take(self, row: Row) -> Iterator[Fact]:
        if row.get("active") == 0 and not row.get("compacted"):
            yield from self._undo(row)
            return
        yield from self._flush_undone()
        is_archived = row.get("active") == 0
        if self._was_archived and not is_archived:
            yield from self._release_held()
            self._is_new_context = True
        self._was_archived = is_archived
        if self._summary is not None and self._repeats_the_end(row):
            return
        if self._summary is not None:
            yield from self._release_held()
        yield from self._take(row)

    def end(self) -> Iterator[Fact]:
        yield from self._flush_undone()
        yield from self._release_held()

    def _take(self, row: Row) -> Iterator[Fact]:
        position = len(self._held)
        if _is_summary(row):
            yield from self._start_compaction(row)
        elif position < len(self._keys) and _key(row) == self._keys[position]:
            self._held.append(row)
        elif self._is_new_context:  # a compaction whose summary does not look like one
            yield from self._start_compaction(None)
            if not self._repeats_the_end(row):
                yield from self._release_held()
                yield from self._say(row)
        else:
            yield from self._release_held()
            yield from self._say(row)

    # A compacted context: the first messages again, the summary, the last messages again.

    def _start_compaction(self, row: Row | None) -> Iterator[Fact]:
        self._pinned = tuple(self._numbers[: len(self._held)])
        if self._held:
            yield RepeatedLines(units=len(self._held))
        self._held = []
        self._summary = row if row is not None else {}
        self._tails = list(range(len(self._keys)))
        self._repeated = 0
        self._is_new_context = False

    def _repeats_the_end(self, row: Row) -> bool:
        """Hold the row if it continues to repeat the last messages."""
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

    def _release_held(self) -> Iterator[Fact]:
        """Decide about the held rows."""
        held, self._held = self._held, []
        if self._summary is not None:
            row, self._summary = self._summary, None
            first = len(self._numbers) - self._repeated
            upto = self._numbers[first] if self._repeated else -1
            summary = _summary_text(row)
            yield ImportedCompaction(
                at=as_time(row.get("timestamp")), summary=summary, pinned=self._pinned, upto=upto, units=int(bool(row))
            )
            if self._repeated:
                yield RepeatedLines(units=self._repeated)
            held = held[self._repeated :]
        for row in held:
            yield from self._say(row)

    # Messages.

    def _say(self, row: Row) -> Iterator[Fact]:
        fact = _convert_row(row, self._model)
        if isinstance(fact, SkippedLines):
            yield fact
            return
        self._keys.append(_key(row))
        self._numbers.append(self._messages)
        self._messages += 1
        yield fact

    def _undo(self, row: Row) -> Iterator[Fact]:
        yield from self._release_held()
        fact = _convert_row(row, self._model)
        if isinstance(fact, SkippedLines):
            yield fact
        else:
            self._undone.append(fact)

    def _flush_undone(self) -> Iterator[Fact]:
        if self._undone:
            self._messages += len(self._undone)
            yield ImportedWithdrawal(at=self._undone[-1].at, said=tuple(self._undone))
            self._undone = []


def _is_summary(row: Row) -> bool:
    return row.get("role") != "tool" and as_text(row.get("content")).lstrip().startswith(SUMMARY_MARKS)


def _summary_text(row: Row) -> str:
    return "\n".join(part.text for part in _content(row.get("content")) if isinstance(part, Text))


def _key(row: Row) -> bytes:
    """A key that a row and its repetition share: a compacted context may have lost the output of tools."""
    role, call = as_text(row.get("role")), as_text(row.get("tool_call_id"))
    said = call if role == "tool" and call else f"{row.get('content')!r}\0{row.get('tool_calls')!r}"
    return hashlib.blake2b(f"{role}\0{said}".encode("utf-8", "surrogatepass"), digest_size=16).digest()


def _convert_row(row: Row, model: str) -> ImportedMessage | SkippedLines:
    at, role, parts = as_time(row.get("timestamp")), as_text(row.get("role")), _content(row.get("content"))
    match role:
        case "user":
            return ImportedInput(at=at, parts=parts)
        case "system":
            return ImportedInput(at=at, parts=parts, name="system")
        case "assistant":
            reply = (*_reasoning(row), *parts, *_calls(row.get("tool_calls")))
            return ImportedReply(at=at, parts=reply, model=model, finish=as_text(row.get("finish_reason")))
        case "tool":
            name = as_text(row.get("tool_name"))
            return ImportedResult(at=at, call_id=as_text(row.get("tool_call_id")), parts=parts, name=name)
        case _:
            return SkippedLines(at=at, why=f"a message with the role {role!r}")


def _content(value: object) -> tuple[Content, ...]:
    if isinstance(value, bytes):
        value = value.decode("utf-8", "surrogateescape")
    said = as_text(value)
    if not said.startswith(JSON_MARK):
        return text_parts(said)
    parts = _json(said.removeprefix(JSON_MARK))
    if not isinstance(parts, list):
        return text_parts(said.removeprefix(JSON_MARK))
    return tuple(_part(as_mapping(one)) for one in parts)


def _part(one: Mapping[str, object]) -> Content:
    given = one.get("image_url")
    url = as_text(given) or as_text(as_mapping(given).get("url"))
    if url.startswith(("data:", "http:", "https:")):
        return Image(url, detail=as_text(as_mapping(given).get("detail")))
    return Text(as_text(one.get("text")) or json.dumps(one))


def _json(value: str) -> object:
    """None if it is not JSON."""
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        return None


def _reasoning(row: Row) -> tuple[Part, ...]:
    thought = as_text(row.get("reasoning")) or as_text(row.get("reasoning_content"))
    opaque = {name: kept for name in THOUGHTS if (kept := as_text(row.get(name))) and kept != thought}
    return (Reasoning(thought, PROVIDER, opaque),) if thought or opaque else ()


def _calls(value: object) -> Iterator[Part]:
    found = _json(as_text(value)) if value else []
    if value and not isinstance(found, list):
        yield Text(f"[calls that cannot be read]\n{value!s}")
    for one in map(as_mapping, as_list(found)):
        function = as_mapping(one.get("function")) or one
        given = function.get("arguments")
        arguments = given if isinstance(given, str) else json.dumps(given if given is not None else {})
        yield ToolCall(as_text(one.get("id")) or as_text(one.get("call_id")), as_text(function.get("name")), arguments)
