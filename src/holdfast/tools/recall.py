"""Lets the model read or search the whole log of its own session, compacted parts included."""

from collections.abc import Iterator

import msgspec

from holdfast.model.event import Entry
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


class Recall:
    repeatable = True
    spec = spec(
        "recall",
        {
            "query": {"type": "string", "description": "Words to look for."},
            "from_seq": {"type": "integer", "minimum": 1, "description": "The first event to read."},
            "to_seq": {"type": "integer", "minimum": 1, "description": "The last event to read."},
        },
        (),
    )

    def __init__(self, database: Database) -> None:
        self._database = database

    def risk(self, arguments: dict[str, object]) -> str | None:
        return None

    async def run(self, arguments: dict[str, object], scene: Scene) -> Output:
        asked = msgspec.convert(arguments, Asked)
        if asked.query.strip():
            lines = await self._database.read(_search, scene.session_id, asked)
            return Output.say("\n".join(lines) or f"Nothing in this session holds {asked.query!r}.")
        return Output.say(await self._database.read(_read, scene.session_id, asked))


def _read(tx: Transaction, session_id: str, asked: Asked) -> str:
    """The range word for word, as far as one page goes, and where to read on."""
    head = sessions.get(tx, session_id).seq
    last = min(asked.to_seq or head, head)
    first = asked.from_seq or max(1, last - NEWEST + 1)
    page: list[str] = []
    size = 0
    for entry in log.read(tx, session_id, first=first, last=last):
        line = _told(entry)
        if line is None:
            continue
        page.append(
            line if len(line) <= PAGE_CHARS else f"{line[:PAGE_CHARS]} [{len(line) - PAGE_CHARS:,} characters left out]"
        )
        size += len(page[-1])
        if size >= PAGE_CHARS and entry.seq < last:
            page.append(f"[more: read on with from_seq={entry.seq + 1} and to_seq={last}]")
            break
    return "\n".join(page) or f"There is no message between {first} and {last}; this session has events 1 to {head}."


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
