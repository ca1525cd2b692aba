"""Recorded changes of files: their contents are stored once, found by session, and deleted with it."""

import pytest

from holdfast.model.errors import LeaseLost
from holdfast.model.file_change import NO_FILE, NewFileChange, hash_content
from holdfast.model.session import Session
from holdfast.store.database import Database
from holdfast.store.repos import file_changes, leases, log, session_pruning, sessions
from holdfast.store.repos.file_changes import EncodedChange, encode
from tests.contract.conftest import NewSession

BYTES = bytes(range(256)) * 40
PATH = "/work/Grüße \udc80.bin"


def change(before: bytes | None, after: bytes, path: str = PATH) -> list[EncodedChange]:
    return encode([NewFileChange(path=path, before=before, after_hash=hash_content(after), mode=0o640, folder="")])


async def test_promise_33_contents_are_stored_exactly_and_once(
    database: Database, session: Session, new_session: NewSession
) -> None:
    other = await new_session()
    for seq, (before, after) in enumerate([(None, BYTES), (BYTES, b"x"), (b"x", BYTES), (BYTES, b"y")], start=3):
        await database.write(file_changes.add, session.id, change(before, after), seq=seq, host="here", at=1)

    found = await database.read(file_changes.list_after, session.id, 3)
    assert [(one.number, one.seq, one.path, one.mode) for one in found] == [
        (2, 4, PATH, 0o640),
        (3, 5, PATH, 0o640),
        (4, 6, PATH, 0o640),
    ]
    first = (await database.read(file_changes.list_after, session.id, 0))[0]
    assert (first.before_hash, first.after_hash) == (NO_FILE, hash_content(BYTES))
    assert await database.read(file_changes.get_image, session.id, hash_content(BYTES)) == BYTES
    assert await database.read(file_changes.get_image, other.id, hash_content(BYTES)) is None
    assert (await database.read(file_changes.get_totals))[:2] == (4, 2)


async def test_beyond_the_limits_the_oldest_contents_are_deleted(
    database: Database, session: Session, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(file_changes, "MAX_SESSION_IMAGES", 3)
    contents = [bytes([number]) * 10 for number in range(5)]
    changes = [one for content in contents for one in change(content, content + b"x", f"/{content!r}")]
    await database.write(file_changes.add, session.id, changes, seq=1, host="here", at=1)
    kept = [await database.read(file_changes.get_image, session.id, hash_content(one)) for one in contents]
    assert kept == [None, None, *contents[2:]]

    monkeypatch.setattr(file_changes, "MAX_SESSION_BYTES", 1)
    await database.write(file_changes.add, session.id, change(BYTES, b"x"), seq=2, host="here", at=1)
    assert (await database.read(file_changes.get_totals))[:2] == (6, 1)
    assert await database.read(file_changes.get_image, session.id, hash_content(BYTES)) == BYTES


async def test_changes_that_are_found_afterwards_are_recorded_once(database: Database, session: Session) -> None:
    for number in range(2):
        found = [*change(b"a", b"b", "/a"), *change(b"c", b"d", "/c")]
        await database.write(file_changes.add, session.id, found, seq=1 + number, host="here", at=1, only_missing=True)

    assert [one.seq for one in await database.read(file_changes.list_after, session.id, 0)] == [1, 1]


async def test_a_pruned_session_leaves_no_contents(database: Database, session: Session) -> None:
    await database.write(file_changes.add, session.id, change(BYTES, b"x"), seq=1, host="here", at=1)
    await database.write(sessions.trash, session.id, at=10)
    assert await database.write(session_pruning.prune, session.id, before=100)

    assert await database.read(file_changes.get_totals) == (0, 0, 0)


async def test_only_the_holder_of_the_lease_passes(database: Database, worker: str, session: Session) -> None:
    lease = await database.write(leases.take, session.id, worker)
    await database.write(log.require_lease, lease)
    await database.write(leases.release, lease)

    with pytest.raises(LeaseLost):
        await database.write(log.require_lease, lease)
