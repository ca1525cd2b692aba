"""Pages of a transcript whose size is bounded: a long message continues on the next page."""

from typing import Self

import msgspec

from holdfast.interop.documents.sessions import SessionResponse
from holdfast.interop.serialization import Document
from holdfast.model.errors import Invalid
from holdfast.model.message import Content, Message, Part, Reasoning, Text, ToolCall, ToolResult
from holdfast.model.session import Session, as_message
from holdfast.model.text import parse_decimal
from holdfast.model.times import iso
from holdfast.store.database import Transaction
from holdfast.store.repos import log, sessions

PAGE_CHARS = 40_000
"""Characters of message text on one page: about 10,000 tokens."""
ARGUMENT_CHARS = 2_000
"""Characters of a tool call's arguments."""
EVENTS = 200
"""Events per read."""


class Position(msgspec.Struct, frozen=True):
    """Where a page begins: after an event, and after this many characters of the message that follows it."""

    after: int = 0
    offset: int = 0

    @classmethod
    def parse(cls, cursor: str) -> Self:
        """Raises Invalid for text that `str` did not return."""
        after, _, offset = cursor.partition(":")
        numbers = (parse_decimal(after), parse_decimal(offset or "0"))
        if numbers[0] is None or numbers[1] is None:
            raise Invalid(f"cursor {cursor[:40]!r} is not one of read_session; use `next` of the page before")
        return cls(numbers[0], numbers[1])

    def __str__(self) -> str:
        return f"{self.after}:{self.offset}" if self.offset else str(self.after)


class TranscriptMessage(Document, frozen=True, omit_defaults=True):
    seq: int
    role: str
    at: str
    turn_id: str
    text: str
    offset: int = 0
    """Characters of the message that were on earlier pages."""
    continues: bool = False
    """Whether the message continues on the next page."""
    tool_calls: list[str] = []
    partial: bool = False


class TranscriptPage(Document, frozen=True):
    session: SessionResponse
    messages: list[TranscriptMessage]
    next: str | None


def read_page(tx: Transaction, session_id: str, position: Position, limit: int, *, last: int | None) -> TranscriptPage:
    """A page of at most `limit` messages, each event verified by its hash. With `last`, it begins that many before the end."""
    session = sessions.get(tx, session_id)
    if last is not None:
        position = _before_last(tx, session, last)
    found: list[TranscriptMessage] = []
    room = PAGE_CHARS
    after, offset = position.after, position.offset
    while entries := log.read_page(tx, session, after=after, limit=EVENTS):
        for entry in entries:
            said = as_message(entry)
            if said is not None:
                if len(found) == limit or room <= 0:
                    return _page(session, found, Position(after, offset))
                item = _part_of_message(said, offset, room)
                found.append(item)
                room -= len(item.text) + sum(map(len, item.tool_calls))
                if item.continues:
                    return _page(session, found, Position(after, offset + len(item.text)))
            after, offset = entry.seq, 0
    return _page(session, found, None)


def render_text(parts: tuple[Part, ...]) -> str:
    """The text of a message; images and files are named, not included."""
    return "".join(_render(part) for part in parts)


def _page(session: Session, found: list[TranscriptMessage], following: Position | None) -> TranscriptPage:
    return TranscriptPage(SessionResponse.from_session(session), found, None if following is None else str(following))


def _part_of_message(said: Message, offset: int, room: int) -> TranscriptMessage:
    text = render_text(said.parts)
    piece = text[offset : offset + room]
    return TranscriptMessage(
        seq=said.seq,
        role=said.role,
        at=iso(said.at),
        turn_id=said.turn_id,
        text=piece,
        offset=offset,
        continues=offset + len(piece) < len(text),
        tool_calls=[] if offset else [_render_call(call) for call in said.tool_calls],
        partial=said.partial,
    )


def _before_last(tx: Transaction, session: Session, count: int) -> Position:
    """The position before the last `count` messages."""
    end = session.seq
    while end > 0:
        start = max(0, end - EVENTS)
        for entry in reversed(log.read_page(tx, session, after=start, limit=end - start)):
            count -= as_message(entry) is not None
            if count == 0:
                return Position(entry.seq - 1)
        end = start
    return Position()


def _render(part: Part) -> str:
    match part:
        case Text(text=text):
            return text
        case ToolResult(parts=parts):
            return render_text(parts)
        case Reasoning() | ToolCall():
            return ""
        case _:
            return _render_attachment(part)


def _render_attachment(part: Content) -> str:
    name = getattr(part, "name", "")
    return f"[{' '.join(filter(None, (type(part).__name__.lower(), name, getattr(part, 'media_type', ''))))}]"


def _render_call(call: ToolCall) -> str:
    arguments = call.arguments
    cut = len(arguments) - ARGUMENT_CHARS
    return f"{call.name} {arguments[:ARGUMENT_CHARS]}{f' … {cut:,} more characters' if cut > 0 else ''}"
