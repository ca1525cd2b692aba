"""Finished pieces of a summary: found by what was asked, written by the holder of the session only, gone with the summary."""

import pytest

from holdfast.model.errors import Invalid, LeaseLost
from holdfast.model.event import MessagePinned, MessageUnpinned, UserSaid
from holdfast.model.message import Text
from holdfast.model.session import Session
from holdfast.store import chunks, leases, log, pins, sessions
from holdfast.store.chunks import Chunk
from holdfast.store.database import Database
from tests.conftest import NewWorker
from tests.contract.conftest import NewSession

PIECE = Chunk(2, 40, "openai:x", "They talked about Grüße 日本語.")
ASKED = "Sum this up: \udc80"


async def test_promise_18_a_piece_is_found_by_what_was_asked_in_its_session_only(
    database: Database, worker: str, session: Session, new_session: NewSession
) -> None:
    other = await new_session()
    lease = await database.write(leases.take, session.id, worker)
    await database.write(chunks.put, lease, ASKED, PIECE, at=1)
    await database.write(chunks.put, lease, "Sum that up", Chunk(41, 50, "m", "More."), at=1)

    assert await database.read(chunks.get, session.id, ASKED) == PIECE
    assert await database.read(chunks.get, session.id, "Sum it up") is None
    assert await database.read(chunks.get, other.id, ASKED) is None
    assert await database.read(chunks.progress, session.id) == (2, 50)
    assert await database.read(chunks.progress, other.id) == (0, 0)


async def test_a_piece_that_was_asked_for_twice_is_kept_once(database: Database, worker: str, session: Session) -> None:
    lease = await database.write(leases.take, session.id, worker)
    await database.write(chunks.put, lease, ASKED, PIECE, at=1)
    await database.write(chunks.put, lease, ASKED, Chunk(2, 40, "m", "Again."), at=2)

    assert (await database.read(chunks.get, session.id, ASKED) or PIECE).summary == "Again."
    assert (await database.read(chunks.progress, session.id))[0] == 1


async def test_promise_11_one_who_lost_the_session_keeps_nothing(
    database: Database, new_worker: NewWorker, session: Session
) -> None:
    late = await database.write(leases.take, session.id, await new_worker())
    await database.write(leases.release, late)
    await database.write(leases.take, session.id, await new_worker())

    with pytest.raises(LeaseLost, match="was not kept"):
        await database.write(chunks.put, late, ASKED, PIECE, at=1)
    assert await database.read(chunks.progress, session.id) == (0, 0)


async def test_pieces_go_with_the_summary_and_with_the_session(
    database: Database, worker: str, session: Session, new_session: NewSession
) -> None:
    pruned = await new_session()
    for one in (session, pruned):
        lease = await database.write(leases.take, one.id, worker)
        await database.write(chunks.put, lease, ASKED, PIECE, at=1)
        await database.write(leases.release, lease)
    await database.write(chunks.drop, session.id)
    await database.write(sessions.trash, pruned.id, at=1)

    assert await database.write(sessions.prune, pruned.id, before=5)
    assert await database.read(chunks.progress, session.id) == (0, 0)
    assert await database.read(chunks.progress, pruned.id) == (0, 0)


async def test_a_message_is_pinned_whoever_holds_the_session(database: Database, worker: str, session: Session) -> None:
    lease = await database.write(leases.take, session.id, worker)
    await database.write(log.append, lease, [UserSaid(turn_id="t", parts=(Text("Mind this."),))], at=1)
    await database.write(pins.pin_message, session.id, 2, pinned=True, at=2)
    after = await database.write(pins.pin_message, session.id, 2, pinned=False, at=3)
    entries = await database.read(log.read_whole, after)

    assert [entry.event for entry in entries[2:]] == [MessagePinned(seq=2), MessageUnpinned(seq=2)]
    with pytest.raises(Invalid, match="no message 1"):
        await database.write(pins.pin_message, session.id, 1, pinned=True, at=4)
