"""What the store has of a foreign session: where its imports ended, and by which names it is found."""

from collections.abc import Iterator

import msgspec

from holdfast.interop.foreign import Foreign
from holdfast.model.entry import decode
from holdfast.model.event import Imported
from holdfast.model.ids import SESSION, derive, looks_like_session
from holdfast.model.session import Session
from holdfast.store import aliases, sessions, transfer
from holdfast.store.database import Transaction

LONGEST_ALIAS = 256


class Mark(msgspec.Struct, frozen=True):
    """Where an import ended."""

    imported: Imported
    goes_on_behind: int
    """The number behind which the next import began, or would begin."""


class Known(msgspec.Struct, frozen=True):
    """What the store has of a foreign session."""

    session: Session
    marks: tuple[Mark, ...]
    begins_behind: int
    """The number before the first event that was woven."""
    stands_at: int
    """Where the newest import ended, or one that was cut short began; with its hash."""
    hash: str
    behind: frozenset[str]
    """Kinds of events behind the last mark."""


def name_of(format_: str, origin: str) -> str:
    """The alias that no other program's session can have. What no database could hold is left out of it."""
    return f"{format_}:{origin}".encode("utf-8", "replace").decode().replace("\0", "")


def find(tx: Transaction, source: Foreign) -> Known | None:
    for origin in (source.origin, *source.others):
        session_id = aliases.find(tx, name_of(source.format, origin))
        if session_id is not None:
            return _look(tx, sessions.get(tx, session_id))
    return None


def _look(tx: Transaction, session: Session) -> Known:
    lines = transfer.marks(tx, session.id)
    first = transfer.first_woven_behind(tx, session.id, 0)
    marks = []
    for line in lines:
        imported = decode(line.kind, line.body)
        assert isinstance(imported, Imported), "only such were asked for"
        begins = transfer.first_woven_behind(tx, session.id, line.seq)
        marks.append(Mark(imported, line.seq if begins is None else begins - 1))
    behind = frozenset(transfer.kinds_behind(tx, session.id, lines[-1].seq if lines else 0))
    stands_at = marks[-1].goes_on_behind if marks else 0
    hash_ = transfer.hash_at(tx, session.id, stands_at)
    return Known(session, tuple(marks), (first or 1) - 1, stands_at, hash_, behind)


def parent_id(tx: Transaction, source: Foreign) -> str | None:
    if source.parent is None:
        return None
    name = name_of(source.format, source.parent.origin)
    found = aliases.find(tx, name)
    return found if found is not None or not source.parent.began_at else derive(SESSION, source.parent.began_at, name)


def bind(tx: Transaction, source: Foreign, session_id: str, *, at: int) -> Iterator[str]:
    """Let every id the session had stand for it: with the format before it for certain, alone where that is free."""
    for origin in (source.origin, *source.others):
        aliases.add(tx, name_of(source.format, origin), session_id, at=at)
        if len(origin) > LONGEST_ALIAS or not origin.isprintable() or looks_like_session(origin):
            continue
        owner = aliases.find(tx, origin)
        if owner is None:
            aliases.add(tx, origin, session_id, at=at)
        elif owner != session_id:
            yield f"{origin} alone is another session here; this one is {name_of(source.format, origin)}"
