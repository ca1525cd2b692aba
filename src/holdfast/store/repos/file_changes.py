"""Recorded changes of files, with the content that each file had before: content-addressed per session, and limited.

When a session exceeds a limit, its oldest contents are deleted; their files can then no longer be restored.
"""

import base64
import json
import zlib
from typing import Protocol, cast

from holdfast.model.file_change import MAX_IMAGE_BYTES, NO_FILE, TOO_LARGE, NewFileChange, RecordedChange, hash_content
from holdfast.store.database import Transaction


class AddChange(Protocol):
    """`add` or `add_missing`."""

    def __call__(
        self, tx: Transaction, session_id: str, change: NewFileChange, /, *, seq: int, host: str, at: int
    ) -> None: ...


MAX_SESSION_BYTES = 64 * 1024 * 1024
MAX_SESSION_IMAGES = 2_000
MAX_SESSION_CHANGES = 10_000


def add(tx: Transaction, session_id: str, change: NewFileChange, *, seq: int, host: str, at: int) -> None:
    """Record a change that is about to be made, with the content before."""
    number = cast("int", (tx.one("file_changes.next_number", session=session_id) or (1,))[0])
    problem, before_hash = change.problem, NO_FILE
    if change.before is not None:
        before_hash = hash_content(change.before)
        if len(change.before) > MAX_IMAGE_BYTES:
            problem = TOO_LARGE
        else:
            _add_image(tx, session_id, before_hash, change.before, number)
    tx.run(
        "file_changes.add",
        session=session_id,
        number=number,
        seq=seq,
        host=host,
        path=json.dumps(change.path),
        before_hash=before_hash,
        after_hash=change.after_hash,
        mode=change.mode,
        folder=json.dumps(change.folder),
        problem=problem,
        at=at,
    )
    tx.run("file_changes.delete_old_changes", session=session_id, upto=number - MAX_SESSION_CHANGES)


def add_missing(tx: Transaction, session_id: str, change: NewFileChange, *, seq: int, host: str, at: int) -> None:
    """Record a change that was found afterwards, unless the newest recorded change of the file has the same result."""
    last = tx.one("file_changes.last_after_hash", session=session_id, path=json.dumps(change.path))
    if last is None or last[0] != change.after_hash:
        add(tx, session_id, change, seq=seq, host=host, at=at)


def _add_image(tx: Transaction, session_id: str, digest: str, data: bytes, number: int) -> None:
    content = base64.b85encode(zlib.compress(data)).decode("ascii")
    tx.run("file_changes.add_image", session=session_id, hash=digest, size=len(content), number=number, content=content)
    while True:
        count, size = cast("tuple[int, int]", tx.one("file_changes.usage", session=session_id) or (0, 0))
        if count <= 1 or (count <= MAX_SESSION_IMAGES and size <= MAX_SESSION_BYTES):
            return
        tx.run("file_changes.delete_oldest_image", session=session_id)


def list_after(tx: Transaction, session_id: str, seq: int) -> list[RecordedChange]:
    """The changes after an event, oldest first."""
    found = []
    for number, at_seq, host, path, before, after, mode, folder, problem in tx.all(
        "file_changes.list_after", session=session_id, seq=seq
    ):
        names = json.loads(cast("str", path)), json.loads(cast("str", folder))
        found.append(
            RecordedChange(number, at_seq, host, names[0], before, after, mode, names[1], problem)  # type: ignore[arg-type] # the schema checks the types
        )
    return found


def get_image(tx: Transaction, session_id: str, digest: str) -> bytes | None:
    """A stored content; None if it was deleted or never stored."""
    row = tx.one("file_changes.get_image", session=session_id, hash=digest)
    return None if row is None else zlib.decompress(base64.b85decode(cast("str", row[0])))


def get_totals(tx: Transaction) -> tuple[int, int, int]:
    """How many changes and contents the store has, and the stored size of the contents."""
    return cast("tuple[int, int, int]", tx.one("file_changes.totals") or (0, 0, 0))
