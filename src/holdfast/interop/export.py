"""A session's log as a file that loses nothing: JSON lines, a header and then one event a line.

`docs/export-format.md` describes it to outsiders. The bodies stand in the file as they stand in the store, so
the hashes can be computed again from the file alone.
"""

from collections.abc import AsyncIterator

from holdfast.interop import shapes
from holdfast.model.errors import Corrupt
from holdfast.model.session import Session
from holdfast.model.times import iso
from holdfast.store import aliases, sessions, transfer
from holdfast.store.database import Database, Transaction
from holdfast.store.transfer import Line

FORMAT = "holdfast-log"
VERSION = 1
CHUNK = 1_000
"""Events of one read."""


async def jsonl(database: Database, session_id: str) -> AsyncIterator[str]:
    """The lines of the file, a chunk at a time. Raises Corrupt rather than pass off a damaged log as whole.

    What is exported is the log as it was when this began; what is said meanwhile is not in it.
    """
    session, names = await database.read(_head, session_id)
    yield header(session, names)
    previous: Line | None = None
    for first in range(1, session.seq + 1, CHUNK):
        last = min(first + CHUNK - 1, session.seq)
        chunk = await database.read(transfer.lines, session_id, first=first, last=last)
        for found in chunk:
            transfer.check(previous, found)
            previous = found
        yield "".join(line(found) for found in chunk)
    if previous is None or (previous.seq, previous.hash) != (session.seq, session.hash):
        raise Corrupt(f"session {session_id} does not end with the event its head has; it was not exported")


def _head(tx: Transaction, session_id: str) -> tuple[Session, list[str]]:
    return sessions.get(tx, session_id), aliases.of_session(tx, session_id)


def header(session: Session, names: list[str]) -> str:
    described = shapes.session(session) | {"aliases": names}
    fields = {"format": FORMAT, "version": VERSION, "session": described, "seq": session.seq, "hash": session.hash}
    return shapes.dump(fields) + "\n"


def line(found: Line) -> str:
    place = f'"seq":{found.seq},"kind":"{found.kind}","at":"{iso(found.at)}","hash":"{found.hash}"'
    return f'{{{place},"body":{found.body}}}\n'
