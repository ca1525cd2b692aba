"""Lets the model read or search the whole log of its own session, compacted parts included."""

from collections.abc import Iterator

import msgspec

from holdfast.model.entry import Entry
from holdfast.model.message import Message, Reasoning, ToolCall
from holdfast.model.session import as_message
from holdfast.model.times import iso
from holdfast.model.tool import Output, Scene
from holdfast.store import log, sessions
from holdfast.store.database import Database, Transaction
from holdfast.tools.describe import spec

PAGE_CHARS = 20_000
"""About five thousand tokens: enough to be worth a call, too little to crowd the context."""
EXCERPT_CHARS = 400
MATCHES = 20
PAGE_EVENTS = 500
NEWEST = 40


class Asked(msgspec.Struct, frozen=True):
    query: str = ""
    from_seq: int | None = None
    to_seq: int | None = None
    offset: int = 0


class Recall:
    repeatable = True
    spec = spec(
        "recall",
        {
            "query": {"type": "string", "description": "Words to look for."},
            "from_seq": {"type": "integer", "minimum": 1, "description": "The first event to read."},
            "to_seq": {"type": "integer", "minimum": 1, "description": "The last event to read."},
            "offset": {"type": "integer", "minimum": 0, "description": "Characters of the first one to skip."},
        },
        (),
    )

    def __init__(self, database: Database, page_chars: int = PAGE_CHARS) -> None:
        self._database = database
        self._page_chars = page_chars

    def risk(self, arguments: dict[str, object]) -> str | None:
        return None

    async def run(self, arguments: dict[str, object], scene: Scene) -> Output:
        asked = msgspec.convert(arguments, Asked)
        if asked.query.strip():
            lines = await self._database.read(_search, scene.session_id, asked)
            shown = _page(lines, self._page_chars)
            return Output.say("\n".join(shown) or f"Nothing in this session holds {asked.query!r}.")
        return Output.say(await self._database.read(_read, scene.session_id, asked, self._page_chars))


def _page(lines: list[str], page_chars: int) -> list[str]:
    """As many of the lines as one page holds, at least one."""
    page: list[str] = []
    for line in lines:
        if page and sum(map(len, page)) + len(line) > page_chars:
            break
        page.append(line)
    return page


def _read(tx: Transaction, session_id: str, asked: Asked, page_chars: int) -> str:
    """The range word for word, as far as one page goes, and where to read on."""
    head = sessions.get(tx, session_id).seq
    last = min(asked.to_seq or head, head)
    first = asked.from_seq or max(1, last - NEWEST + 1)
    page: list[str] = []
    left = page_chars
    for entry in _forwards(tx, session_id, first, last):
        line = _told(entry)
        if line is None:
            continue
        skipped = asked.offset if entry.seq == first else 0
        piece = line[skipped : skipped + left]
        page.append(piece)
        left -= len(piece)
        if (rest := len(line) - skipped - len(piece)) > 0:
            page.append(
                f"[{rest:,} characters of it left: read on with from_seq={entry.seq}, to_seq={last} "
                f"and offset={skipped + len(piece)}]"
            )
            break
        if left <= 0 and entry.seq < last:
            page.append(f"[more: read on with from_seq={entry.seq + 1} and to_seq={last}]")
            break
    return "\n".join(page) or f"There is no message between {first} and {last}; this session has events 1 to {head}."


def _forwards(tx: Transaction, session_id: str, first: int, last: int) -> Iterator[Entry]:
    for start in range(first, last + 1, PAGE_EVENTS):
        yield from log.read(tx, session_id, first=start, last=min(last, start + PAGE_EVENTS - 1))


def _search(tx: Transaction, session_id: str, asked: Asked) -> list[str]:
    words = asked.query.casefold().split()
    found: list[str] = []
    for entry in _backwards(tx, session_id, asked):
        line = _told(entry)
        if line is not None and all(word in line.casefold() for word in words):
            found.append(_excerpt(line, words[0]))
            if len(found) == MATCHES:
                break
    return found


def _backwards(tx: Transaction, session_id: str, asked: Asked) -> Iterator[Entry]:
    last = min(asked.to_seq or log.TO_THE_END, sessions.get(tx, session_id).seq)
    first = asked.from_seq or 1
    while last >= first:
        start = max(first, last - PAGE_EVENTS + 1)
        yield from reversed(log.read(tx, session_id, first=start, last=last))
        last = start - 1


def _told(entry: Entry) -> str | None:
    """A message on its line, with its number; None for an event that carries none."""
    message = as_message(entry)
    if message is None:
        return None
    return f"[{entry.seq}] {iso(entry.at)[:16]} {message.role}: {_words(message)}"


def _words(message: Message) -> str:
    calls = [f"{part.name}({part.arguments})" for part in message.parts if isinstance(part, ToolCall)]
    thoughts = [part.text for part in message.parts if isinstance(part, Reasoning) and part.text]
    return " ".join([*thoughts, message.text, *calls]).strip()


def _excerpt(line: str, word: str) -> str:
    """The line around the word."""
    if len(line) <= EXCERPT_CHARS:
        return line
    label, _, text = line.partition(": ")
    place = max(0, text.casefold().find(word) - EXCERPT_CHARS // 2)
    return f"{label}: {'…' if place else ''}{text[place : place + EXCERPT_CHARS]}…"
