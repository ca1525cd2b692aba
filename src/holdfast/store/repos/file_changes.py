"""Recorded changes of files, with the content that each file had before: content-addressed per session, and limited.

When a session exceeds a limit, its oldest contents are deleted; their files can then no longer be restored.
"""

import base64
import json
import zlib
from collections.abc import Iterable, Sequence
from typing import cast

import msgspec

from holdfast.model.file_change import MAX_IMAGE_BYTES, NO_FILE, TOO_LARGE, NewFileChange, RecordedChange, hash_content
from holdfast.store.database import Transaction

MAX_SESSION_BYTES = 64 * 1024 * 1024
MAX_SESSION_IMAGES = 2_000
MAX_SESSION_CHANGES = 10_000


class EncodedChange(msgspec.Struct, frozen=True):
    """A change, and the content before in the form in which it is stored; None if it is not."""

    change: NewFileChange
    before_hash: str
    problem: str
    content: str | None


def encode(changes: Iterable[NewFileChange]) -> list[EncodedChange]:
    """Prepare changes for `add`, before its transaction: a large content takes half a second."""
    return [_encode(change) for change in changes]


def _encode(change: NewFileChange) -> EncodedChange:
    data = change.before
    if data is None:
        return EncodedChange(change, NO_FILE, change.problem, None)
    if len(data) > MAX_IMAGE_BYTES:
        return EncodedChange(change, hash_content(data), TOO_LARGE, None)
    content = base64.b85encode(zlib.compress(data)).decode("ascii")
    return EncodedChange(change, hash_content(data), change.problem, content)


def add(
    tx: Transaction,
    session_id: str,
    changes: Sequence[EncodedChange],
    *,
    seq: int,
    host: str,
    at: int,
    only_missing: bool = False,
) -> None:
    """Record changes that are about to be made, with the contents before.

    With `only_missing` they were found afterwards: one with the same result as the newest recorded change of its file is skipped.
    """
    number = cast("int", (tx.one("file_changes.next_number", session=session_id) or (1,))[0])
    recorded = tx.all("file_changes.list_results", session=session_id) if only_missing else []
    results = {path: after for path, after in recorded}  # noqa: C416 - a row has no fixed length
    for one in changes:
        if results.get(json.dumps(one.change.path)) == one.change.after_hash:
            continue
        _add(tx, session_id, one, number=number, seq=seq, host=host, at=at)
        number += 1
    tx.run("file_changes.delete_old_changes", session=session_id, upto=number - 1 - MAX_SESSION_CHANGES)
    _delete_old_images(tx, session_id)


def _add(
    tx: Transaction, session_id: str, encoded: EncodedChange, *, number: int, seq: int, host: str, at: int
) -> None:
    change, content = encoded.change, encoded.content
    if content is not None:
        digest, size = encoded.before_hash, len(content)
        tx.run("file_changes.add_image", session=session_id, hash=digest, size=size, number=number, content=content)
    tx.run(
        "file_changes.add",
        session=session_id,
        number=number,
        seq=seq,
        host=host,
        path=json.dumps(change.path),
        before_hash=encoded.before_hash,
        after_hash=change.after_hash,
        mode=change.mode,
        folder=json.dumps(change.folder),
        problem=encoded.problem,
        at=at,
    )


def _delete_old_images(tx: Transaction, session_id: str) -> None:
    """Delete the oldest contents beyond the limits, never the newest one."""
    total = 0
    for count, row in enumerate(tx.all("file_changes.list_sizes", session=session_id)):
        number, size = cast("tuple[int, int]", row)
        total += size
        if count and (count >= MAX_SESSION_IMAGES or total > MAX_SESSION_BYTES):
            tx.run("file_changes.delete_old_images", session=session_id, upto=number)
            return


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
