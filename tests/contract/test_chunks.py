"""Finished chunks of a summary: found by their request, written only by the holder of the session, deleted with the summary."""

import pytest

from holdfast.model.errors import Invalid, LeaseLost
from holdfast.model.event import MessagePinned, MessageUnpinned, UserSaid
from holdfast.model.message import Text
from holdfast.model.session import Session
from holdfast.store.database import Database
from holdfast.store.repos import leases, log, session_pruning, sessions, summary_chunks
from holdfast.store.repos.summary_chunks import SummaryChunk
from tests.conftest import NewWorker
from tests.contract.conftest import NewSession

PIECE = SummaryChunk(2, 40, "openai:x", "They talked about Grüße 日本語.")
ASKED = "Sum this up: \udc80"


async def test_promise_18_a_chunk_is_found_by_its_request_in_its_session_only(
    database: Database, worker: str, session: Session, new_session: NewSession
) -> None:
    other = await new_session()
    lease = await database.write(leases.take, session.id, worker)
    await database.write(summary_chunks.put, lease, ASKED, PIECE, at=1)
    await database.write(summary_chunks.put, lease, "Sum that up", SummaryChunk(41, 50, "m", "More."), at=1)

    assert await database.read(summary_chunks.get, session.id, ASKED) == PIECE
    assert await database.read(summary_chunks.get, session.id, "Sum it up") is None
    assert await database.read(summary_chunks.get, other.id, ASKED) is None
    assert await database.read(summary_chunks.get_progress, session.id) == (2, 50)
    assert await database.read(summary_chunks.get_progress, other.id) == (0, 0)


async def test_a_chunk_that_is_stored_twice_is_kept_once(database: Database, worker: str, session: Session) -> None:
    lease = await database.write(leases.take, session.id, worker)
    await database.write(summary_chunks.put, lease, ASKED, PIECE, at=1)
    await database.write(summary_chunks.put, lease, ASKED, SummaryChunk(2, 40, "m", "Again."), at=2)

    assert (await database.read(summary_chunks.get, session.id, ASKED) or PIECE).summary == "Again."
    assert (await database.read(summary_chunks.get_progress, session.id))[0] == 1


async def test_promise_11_a_worker_that_lost_the_session_stores_nothing(
    database: Database, new_worker: NewWorker, session: Session
) -> None:
    late = await database.write(leases.take, session.id, await new_worker())
    await database.write(leases.release, late)
    await database.write(leases.take, session.id, await new_worker())

    with pytest.raises(LeaseLost, match="was not saved"):
        await database.write(summary_chunks.put, late, ASKED, PIECE, at=1)
    assert await database.read(summary_chunks.get_progress, session.id) == (0, 0)


async def test_chunks_are_deleted_with_the_summary_and_with_the_session(
    database: Database, worker: str, session: Session, new_session: NewSession
) -> None:
    pruned = await new_session()
    for one in (session, pruned):
        lease = await database.write(leases.take, one.id, worker)
        await database.write(summary_chunks.put, lease, ASKED, PIECE, at=1)
        await database.write(leases.release, lease)
    await database.write(summary_chunks.delete, session.id)
    await database.write(sessions.trash, pruned.id, at=1)

    assert await database.write(session_pruning.prune, pruned.id, before=5)
    assert await database.read(summary_chunks.get_progress, session.id) == (0, 0)
    assert await database.read(summary_chunks.get_progress, pruned.id) == (0, 0)


async def test_a_message_can_be_pinned_whichever_worker_holds_the_session(
    database: Database, worker: str, session: Session
) -> None:
    lease = await database.write(leases.take, session.id, worker)
    await database.write(log.append, lease, [UserSaid(turn_id="t", parts=(Text("Mind this."),))], at=1)
    await database.write(sessions.pin_message, session.id, 2, pinned=True, at=2)
    after = await database.write(sessions.pin_message, session.id, 2, pinned=False, at=3)
    entries = await database.read(log.read_complete, after)

    assert [entry.event for entry in entries[2:]] == [MessagePinned(seq=2), MessageUnpinned(seq=2)]
    with pytest.raises(Invalid, match="no message 1"):
        await database.write(sessions.pin_message, session.id, 1, pinned=True, at=4)
