"""What the store has of a foreign session: where its imports ended, and its aliases."""

from collections.abc import Iterator

import msgspec

from holdfast.interop.importing.facts import ForeignSession
from holdfast.model.entry import decode
from holdfast.model.event import Imported
from holdfast.model.ids import SESSION, derive, looks_like_session
from holdfast.model.session import Session
from holdfast.store.database import Transaction
from holdfast.store.repos import aliases, log_import, sessions

MAX_ALIAS_CHARS = 256


class ImportPosition(msgspec.Struct, frozen=True):
    """Where an import ended."""

    imported: Imported
    goes_on_behind: int
    """The event number after which the next import starts."""


class ImportedState(msgspec.Struct, frozen=True):
    """What the store has of a foreign session."""

    session: Session
    marks: tuple[ImportPosition, ...]
    begins_behind: int
    """The number before the first imported event."""
    stands_at: int
    """Where the newest import ended, or where an interrupted one started; with its hash."""
    hash: str
    behind: frozenset[str]
    """Kinds of the events after the last mark."""


def source_alias(format_: str, origin: str) -> str:
    """An alias that is unique across programs. Characters that a database cannot store are replaced or removed."""
    return f"{format_}:{origin}".encode("utf-8", "replace").decode().replace("\0", "")


def find_import(tx: Transaction, source: ForeignSession) -> ImportedState | None:
    for origin in (source.origin, *source.others):
        session_id = aliases.find(tx, source_alias(source.format, origin))
        if session_id is not None:
            return _load_state(tx, sessions.get(tx, session_id))
    return None


def _load_state(tx: Transaction, session: Session) -> ImportedState:
    lines = log_import.list_import_marks(tx, session.id)
    first = log_import.find_first_message_after(tx, session.id, 0)
    marks = []
    for line in lines:
        imported = decode(line.kind, line.body)
        assert isinstance(imported, Imported), "only such were asked for"
        begins = log_import.find_first_message_after(tx, session.id, line.seq)
        marks.append(ImportPosition(imported, line.seq if begins is None else begins - 1))
    behind = frozenset(log_import.list_kinds_after(tx, session.id, lines[-1].seq if lines else 0))
    stands_at = marks[-1].goes_on_behind if marks else 0
    hash_ = log_import.get_hash(tx, session.id, stands_at)
    return ImportedState(session, tuple(marks), (first or 1) - 1, stands_at, hash_, behind)


def find_parent(tx: Transaction, source: ForeignSession) -> str | None:
    if source.parent is None:
        return None
    name = source_alias(source.format, source.parent.origin)
    found = aliases.find(tx, name)
    return found if found is not None or not source.parent.began_at else derive(SESSION, source.parent.began_at, name)


def add_aliases(tx: Transaction, source: ForeignSession, session_id: str, *, at: int) -> Iterator[str]:
    """Add an alias for every id of the session: always with the format as prefix, and without it where that is free."""
    for origin in (source.origin, *source.others):
        aliases.add(tx, source_alias(source.format, origin), session_id, at=at)
        if len(origin) > MAX_ALIAS_CHARS or not origin.isprintable() or looks_like_session(origin):
            continue
        owner = aliases.find(tx, origin)
        if owner is None:
            aliases.add(tx, origin, session_id, at=at)
        elif owner != session_id:
            yield f"{origin} is the alias of another session here; this session is {source_alias(source.format, origin)}"
