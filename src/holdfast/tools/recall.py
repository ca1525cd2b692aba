"""Lets the model read or search the whole log of its own session, compacted parts included."""

from collections.abc import Iterator

import msgspec

from holdfast.model.entry import Entry
from holdfast.model.finding import Finding
from holdfast.model.message import Message, Reasoning, ToolCall
from holdfast.model.session import as_message
from holdfast.model.times import iso
from holdfast.model.tool import ToolContext, ToolOutput
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import log, sessions
from holdfast.tools.spec import load_spec

PAGE_CHARS = 20_000
"""About five thousand tokens: enough to be worth a call, little of the context window."""
EXCERPT_CHARS = 400
MATCHES = 20
PAGE_EVENTS = 500
NEWEST = 40


class RecallArguments(msgspec.Struct, frozen=True):
    query: str = ""
    from_seq: int | None = None
    to_seq: int | None = None
    offset: int = 0


class RecallTool:
    repeatable = True
    spec = load_spec(
        "recall",
        {
            "query": {"type": "string", "description": "Words to search for."},
            "from_seq": {"type": "integer", "minimum": 1, "description": "The first event to read."},
            "to_seq": {"type": "integer", "minimum": 1, "description": "The last event to read."},
            "offset": {"type": "integer", "minimum": 0, "description": "Characters of the first one to skip."},
        },
        (),
    )

    def __init__(self, database: Database, page_chars: int = PAGE_CHARS) -> None:
        self._database = database
        self._page_chars = page_chars

    def risk(self, arguments: dict[str, object], context: ToolContext) -> tuple[Finding, ...]:
        return ()

    async def run(self, arguments: dict[str, object], context: ToolContext) -> ToolOutput:
        parsed = msgspec.convert(arguments, RecallArguments)
        if parsed.query.strip():
            lines = await self._database.read(_search, context.session_id, parsed)
            shown = _first_page(lines, self._page_chars)
            return ToolOutput.say("\n".join(shown) or f"No message of this session contains {parsed.query!r}.")
        return ToolOutput.say(await self._database.read(_read, context.session_id, parsed, self._page_chars))


def _first_page(lines: list[str], page_chars: int) -> list[str]:
    """As many of the lines as fit on one page, at least one."""
    page: list[str] = []
    for line in lines:
        if page and sum(map(len, page)) + len(line) > page_chars:
            break
        page.append(line)
    return page


def _read(tx: Transaction, session_id: str, parsed: RecallArguments, page_chars: int) -> str:
    """One page of the range in full, and where to continue."""
    head = sessions.get(tx, session_id).seq
    last = min(parsed.to_seq or head, head)
    first = parsed.from_seq or max(1, last - NEWEST + 1)
    page: list[str] = []
    left = page_chars
    for entry in _read_forward(tx, session_id, first, last):
        line = _format_entry(entry)
        if line is None:
            continue
        skipped = parsed.offset if entry.seq == first else 0
        piece = line[skipped : skipped + left]
        page.append(piece)
        left -= len(piece)
        if (rest := len(line) - skipped - len(piece)) > 0:
            page.append(
                f"[{rest:,} more characters: continue with from_seq={entry.seq}, to_seq={last} "
                f"and offset={skipped + len(piece)}]"
            )
            break
        if left <= 0 and entry.seq < last:
            page.append(f"[more: continue with from_seq={entry.seq + 1} and to_seq={last}]")
            break
    return "\n".join(page) or f"There is no message between {first} and {last}; this session has events 1 to {head}."


def _read_forward(tx: Transaction, session_id: str, first: int, last: int) -> Iterator[Entry]:
    for start in range(first, last + 1, PAGE_EVENTS):
        yield from log.read(tx, session_id, first=start, last=min(last, start + PAGE_EVENTS - 1))


def _search(tx: Transaction, session_id: str, parsed: RecallArguments) -> list[str]:
    words = parsed.query.casefold().split()
    found: list[str] = []
    for entry in _read_backward(tx, session_id, parsed):
        line = _format_entry(entry)
        if line is not None and all(word in line.casefold() for word in words):
            found.append(_excerpt(line, words[0]))
            if len(found) == MATCHES:
                break
    return found


def _read_backward(tx: Transaction, session_id: str, parsed: RecallArguments) -> Iterator[Entry]:
    last = min(parsed.to_seq or log.TO_THE_END, sessions.get(tx, session_id).seq)
    first = parsed.from_seq or 1
    while last >= first:
        start = max(first, last - PAGE_EVENTS + 1)
        yield from reversed(log.read(tx, session_id, first=start, last=last))
        last = start - 1


def _format_entry(entry: Entry) -> str | None:
    """The message of an event on one line, with its number; None for an event without a message."""
    message = as_message(entry)
    if message is None:
        return None
    return f"[{entry.seq}] {iso(entry.at)[:16]} {message.role}: {_message_text(message)}"


def _message_text(message: Message) -> str:
    calls = [f"{part.name}({part.arguments})" for part in message.parts if isinstance(part, ToolCall)]
    reasoning = [part.text for part in message.parts if isinstance(part, Reasoning) and part.text]
    return " ".join([*reasoning, message.text, *calls]).strip()


def _excerpt(line: str, word: str) -> str:
    """The line around the word."""
    if len(line) <= EXCERPT_CHARS:
        return line
    label, _, text = line.partition(": ")
    start = max(0, text.casefold().find(word) - EXCERPT_CHARS // 2)
    return f"{label}: {'…' if start else ''}{text[start : start + EXCERPT_CHARS]}…"
