"""Reads the file that `export` writes and brings its session back, unchanged or not at all."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from holdfast.interop.export import FORMAT, VERSION
from holdfast.model.entry import decode, dumps
from holdfast.model.errors import Corrupt, HoldfastError, Invalid, Unsupported
from holdfast.model.event import Imported
from holdfast.model.ids import looks_like_session
from holdfast.model.session import Summary, fold
from holdfast.model.times import from_iso
from holdfast.store import aliases, transfer
from holdfast.store.database import Transaction
from holdfast.store.transfer import Line, Merged, Proved


class Header(msgspec.Struct, frozen=True):
    """What the first line promises."""

    session_id: str
    seq: int
    hash: str
    aliases: tuple[str, ...] = ()


class Log(msgspec.Struct, frozen=True):
    """A file that has been read to its end and proved."""

    header: Header
    proved: Proved


class Again:
    """The lines of a file, read anew each time somebody goes through them."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            yield from file


class _Place(msgspec.Struct, frozen=True):
    seq: int
    kind: str
    at: str
    hash: str
    body: dict[str, object]


def parse(file: Iterable[bytes], name: str) -> Log:
    """Prove a file line by line. Raises Invalid or Corrupt and names the line; nothing is stored by this.

    Nothing of the file is kept but its header: it must be there, and the same, when it is stored.
    """
    found = _through(file, name)
    header = next(found, None)
    if not isinstance(header, Header):
        raise Invalid(f"{name} is empty; nothing was imported")
    summary, seq, hash_ = Summary(), 0, ""
    for line in found:
        assert isinstance(line, Line), "a header comes first and only once"
        seq, hash_ = line.seq, line.hash
        try:
            summary = fold(summary, decode(line.kind, line.body), line.at)
        except Corrupt as e:
            raise Unsupported(f"{name} cannot be read by this release: {e}; nothing was imported") from e
    _refuse_incomplete(header, seq, hash_, name)
    return Log(header, Proved(seq, hash_, summary, lambda: _lines(file, name)))


def _lines(file: Iterable[bytes], name: str) -> Iterator[Line]:
    return (line for line in _through(file, name) if isinstance(line, Line))


def _through(file: Iterable[bytes], name: str) -> Iterator[Header | Line]:
    """The header, then each event, proved to follow the one before it."""
    header: Header | None = None
    previous: Line | None = None
    for number, text in _texts(file, name):
        try:
            if header is None:
                header = _header(text)
                yield header
                continue
            line = _line(text)
            transfer.check(previous, line)
        except HoldfastError as e:
            raise type(e)(f"{name}, line {number}: {e}; nothing was imported") from e
        previous = line
        yield line


def _texts(file: Iterable[bytes], name: str) -> Iterator[tuple[int, str]]:
    """The lines that hold something, numbered from 1."""
    for number, raw in enumerate(file, 1):
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as e:
            raise Invalid(f"{name}, line {number}: this is not text; nothing was imported") from e
        if text.strip():
            yield number, text


def _refuse_incomplete(header: Header, seq: int, hash_: str, name: str) -> None:
    if seq != header.seq:
        raise Corrupt(
            f"{name} is cut off: its first line says {header.seq} events, {seq} are there; nothing was imported"
        )
    if hash_ != header.hash:
        raise Corrupt(f"{name} does not end with the event its first line says; nothing was imported")


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        raise Invalid("this is not one JSON value") from e


def _header(text: str) -> Header:
    value = _json(text)
    if not isinstance(value, dict) or value.get("format") != FORMAT:
        raise Invalid(f'the first line must be a header with "format": "{FORMAT}"')
    if value.get("version") != VERSION:
        raise Unsupported(f"this is version {value.get('version')!r} of the format; this release reads {VERSION}")
    session = value.get("session")
    try:
        if not isinstance(session, dict):
            raise Invalid('the header has no "session"')
        fields = {"session_id": session.get("id"), "seq": value.get("seq"), "hash": value.get("hash")}
        header = msgspec.convert({**fields, "aliases": session.get("aliases", [])}, Header)
    except msgspec.ValidationError as e:
        raise Invalid(f"the header makes no sense: {e}") from e
    if not looks_like_session(header.session_id):
        raise Invalid(f"{header.session_id!r} is not a session id")
    return header


def _line(text: str) -> Line:
    try:
        place = msgspec.convert(_json(text), _Place)
        # Written anew in the one form there is, so that a file that was only reformatted still proves.
        return Line(place.seq, place.kind, from_iso(place.at), place.hash, dumps(place.body))
    except msgspec.ValidationError as e:
        raise Invalid(f"this is not an event: {e}") from e
    except (ValueError, OverflowError, RecursionError) as e:
        raise Corrupt(f"this event cannot be read: {e}") from e


def store(tx: Transaction, log: Log, *, at: int) -> Merged:
    """Bring the session into the store under its own id; see `transfer.merge`. Its other names come with it, where free."""
    merged = transfer.merge(tx, log.header.session_id, log.proved, at=at)
    for alias in log.header.aliases:
        if aliases.find(tx, alias) is None:
            aliases.add(tx, alias, merged.session.id, at=at)
    return merged


def store_as(tx: Transaction, log: Log, new_id: str, *, at: int) -> Merged:
    """Bring the session into the store under a new id, whatever is there under its own."""
    imported = Imported(format=FORMAT, origin=log.header.session_id, messages=log.proved.summary.message_count)
    return transfer.add_as(tx, new_id, log.proved, imported, at=at)
