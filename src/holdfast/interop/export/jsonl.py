"""Exports a session's log without loss: JSON lines, a header and then one event per line.

`docs/export-format.md` specifies the format. The bodies are the same text as in the store, so that the hashes can be
verified from the file alone.
"""

from collections.abc import AsyncIterator

import msgspec

from holdfast.interop.documents.sessions import SessionResponse
from holdfast.interop.serialization import dump
from holdfast.model.errors import Corrupt
from holdfast.model.session import Session
from holdfast.model.times import iso
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import aliases, log_import, sessions
from holdfast.store.repos.log_import import StoredEvent

FORMAT = "holdfast-log"
VERSION = 1
CHUNK = 1_000
NOT_IN_HEADER = ("mode", "goal_state", "delegated_by", "children")
"""Later fields of a session. The events contain them; the header keeps the form that earlier releases wrote."""
"""Events per read."""


async def export_lines(database: Database, session_id: str) -> AsyncIterator[str]:
    """The lines of the file, one chunk at a time. Raises Corrupt if the log is damaged.

    Exports the log as it was at the start of the export; later events are not included.
    """
    session, names = await database.read(_head, session_id)
    yield header_line(session, names)
    previous: StoredEvent | None = None
    for first in range(1, session.seq + 1, CHUNK):
        last = min(first + CHUNK - 1, session.seq)
        chunk = await database.read(log_import.read_stored_events, session_id, first=first, last=last)
        for found in chunk:
            log_import.check_link(previous, found)
            previous = found
        yield "".join(event_line(found) for found in chunk)
    if previous is None or (previous.seq, previous.hash) != (session.seq, session.hash):
        raise Corrupt(
            f"session {session_id} is damaged: its last event does not match its head; the export is incomplete"
        )


def _head(tx: Transaction, session_id: str) -> tuple[Session, list[str]]:
    return sessions.get(tx, session_id), aliases.list_by_session(tx, session_id)


def header_line(session: Session, names: list[str]) -> str:
    described = msgspec.structs.asdict(SessionResponse.from_session(session)) | {"aliases": names}
    for name in NOT_IN_HEADER:
        del described[name]
    fields = {"format": FORMAT, "version": VERSION, "session": described, "seq": session.seq, "hash": session.hash}
    return dump(fields) + "\n"


def event_line(found: StoredEvent) -> str:
    head = f'"seq":{found.seq},"kind":"{found.kind}","at":"{iso(found.at)}","hash":"{found.hash}"'
    return f'{{{head},"body":{found.body}}}\n'
