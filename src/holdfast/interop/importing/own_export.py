"""Imports a file that `export` wrote: unchanged, or not at all."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path

import msgspec

from holdfast.interop.export.jsonl import FORMAT, VERSION
from holdfast.model.entry import decode, dumps
from holdfast.model.errors import Corrupt, HoldfastError, Invalid, Unsupported
from holdfast.model.event import Imported
from holdfast.model.ids import looks_like_session
from holdfast.model.mode import DEFAULT_MODE, least_permissive
from holdfast.model.session import SessionSummary, fold
from holdfast.model.times import from_iso
from holdfast.store.database import Transaction
from holdfast.store.repos import aliases, log_import, sessions
from holdfast.store.repos.log_import import MergeResult, StoredEvent, VerifiedLog


class ExportHeader(msgspec.Struct, frozen=True):
    """The first line of the file."""

    session_id: str
    seq: int
    hash: str
    aliases: tuple[str, ...] = ()


class ExportedLog(msgspec.Struct, frozen=True):
    """A file that has been read completely and verified."""

    header: ExportHeader
    proved: VerifiedLog


class RepeatableLines:
    """The lines of a file, read again in each iteration."""

    def __init__(self, path: Path) -> None:
        self._path = path

    def __iter__(self) -> Iterator[bytes]:
        with self._path.open("rb") as file:
            yield from file


class _EventLine(msgspec.Struct, frozen=True):
    seq: int
    kind: str
    at: str
    hash: str
    body: dict[str, object]


def verify_export(file: Iterable[bytes], name: str) -> ExportedLog:
    """Verify a file line by line, without storing anything. Raises Invalid or Corrupt with the line number.

    Only the header is kept in memory: the file must still exist, unchanged, when it is stored.
    """
    found = _verify_lines(file, name)
    header = next(found, None)
    if not isinstance(header, ExportHeader):
        raise Invalid(f"{name} is empty; nothing was imported")
    summary, seq, hash_ = SessionSummary(), 0, ""
    for line in found:
        assert isinstance(line, StoredEvent), "a header comes first and only once"
        seq, hash_ = line.seq, line.hash
        try:
            summary = fold(summary, decode(line.kind, line.body), line.at)
        except Corrupt as e:
            raise Unsupported(f"{name} cannot be read by this release: {e}; nothing was imported") from e
    _refuse_incomplete(header, seq, hash_, name)
    return ExportedLog(header, VerifiedLog(seq, hash_, summary, lambda: _lines(file, name)))


def _lines(file: Iterable[bytes], name: str) -> Iterator[StoredEvent]:
    return (line for line in _verify_lines(file, name) if isinstance(line, StoredEvent))


def _verify_lines(file: Iterable[bytes], name: str) -> Iterator[ExportHeader | StoredEvent]:
    """The header, then each event, verified to follow the one before it."""
    header: ExportHeader | None = None
    previous: StoredEvent | None = None
    for number, text in _decode_lines(file, name):
        try:
            if header is None:
                header = _header(text)
                yield header
                continue
            line = _line(text)
            log_import.check_link(previous, line)
        except HoldfastError as e:
            raise type(e)(f"{name}, line {number}: {e}; nothing was imported") from e
        previous = line
        yield line


def _decode_lines(file: Iterable[bytes], name: str) -> Iterator[tuple[int, str]]:
    """The lines that are not blank, numbered from 1."""
    for number, raw in enumerate(file, 1):
        try:
            text = raw.decode("utf-8-sig" if number == 1 else "utf-8")
        except UnicodeDecodeError as e:
            raise Invalid(f"{name}, line {number}: this is not text; nothing was imported") from e
        if text.strip():
            yield number, text


def _refuse_incomplete(header: ExportHeader, seq: int, hash_: str, name: str) -> None:
    if seq != header.seq:
        raise Corrupt(
            f"{name} is truncated: its header announces {header.seq} events, but it contains {seq}; nothing was imported"
        )
    if hash_ != header.hash:
        raise Corrupt(f"{name} does not end with the event that its header names; nothing was imported")


def _json(text: str) -> object:
    try:
        return json.loads(text)
    except (ValueError, RecursionError) as e:
        raise Invalid("this is not a JSON value") from e


def _header(text: str) -> ExportHeader:
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
        header = msgspec.convert({**fields, "aliases": session.get("aliases", [])}, ExportHeader)
    except msgspec.ValidationError as e:
        raise Invalid(f"the header is invalid: {e}") from e
    if not looks_like_session(header.session_id):
        raise Invalid(f"{header.session_id!r} is not a session id")
    return header


def _line(text: str) -> StoredEvent:
    try:
        line_fields = msgspec.convert(_json(text), _EventLine)
        # Serialized again in the canonical form, so that a file that was only reformatted still verifies.
        return StoredEvent(
            line_fields.seq, line_fields.kind, from_iso(line_fields.at), line_fields.hash, dumps(line_fields.body)
        )
    except msgspec.ValidationError as e:
        raise Invalid(f"this is not an event: {e}") from e
    except (ValueError, OverflowError, RecursionError) as e:
        raise Corrupt(f"this event cannot be read: {e}") from e


def store(tx: Transaction, log: ExportedLog, *, at: int) -> MergeResult:
    """Import the session under its own id; see `log_import.merge`. Its aliases are imported too unless they are taken."""
    merged = _cap_mode(tx, log_import.merge(tx, log.header.session_id, log.proved, at=at), at)
    for alias in log.header.aliases:
        if aliases.find(tx, alias) is None:
            aliases.add(tx, alias, merged.session.id, at=at)
    return merged


def store_as(tx: Transaction, log: ExportedLog, new_id: str, *, at: int) -> MergeResult:
    """Import the session under a new id, whatever the store has under its own."""
    imported = Imported(format=FORMAT, origin=log.header.session_id, messages=log.proved.summary.message_count)
    return _cap_mode(tx, log_import.import_as_new(tx, new_id, log.proved, imported, at=at), at)


def _cap_mode(tx: Transaction, merged: MergeResult, at: int) -> MergeResult:
    """A file must not allow calls without asking: the mode `trusted` is not imported."""
    mode = merged.session.summary.mode
    if not merged.added or least_permissive(mode, DEFAULT_MODE) == mode:
        return merged
    session = sessions.set_mode(tx, merged.session.id, DEFAULT_MODE, by="import", at=at)
    return msgspec.structs.replace(merged, session=session)
