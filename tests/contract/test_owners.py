"""Owners: which worker has a session open, what happens when it is gone, and the lists of a sweep."""

import pytest

from holdfast.model.errors import Conflict
from holdfast.model.event import TurnStarted
from holdfast.model.session import Session
from holdfast.store.database import Database
from holdfast.store.repos import input_queue, leases, log, ownership, sessions, workers
from holdfast.store.repos.input_queue import Input
from tests.conftest import NewWorker
from tests.contract.conftest import NewSession
from tests.contract.logs import user

GONE = "it was killed"


async def owner_of(database: Database, session: Session) -> str | None:
    return (await database.read(sessions.get, session.id)).owner_worker


async def test_a_session_has_one_owner_at_a_time(database: Database, session: Session, new_worker: NewWorker) -> None:
    first, second = await new_worker(), await new_worker()

    assert await database.write(ownership.attach, session.id, first)
    assert await database.write(ownership.attach, session.id, first), "a repeat is no error"
    assert not await database.write(ownership.attach, session.id, second)
    assert await owner_of(database, session) == first


async def test_sessions_of_a_worker_that_was_declared_dead_can_be_owned_by_others_and_it_can_own_none(
    database: Database, session: Session, new_worker: NewWorker
) -> None:
    dead, living = await new_worker(), await new_worker()
    await database.write(ownership.attach, session.id, dead)
    await database.write(workers.mark_dead, dead, GONE, at=1)

    assert await database.write(ownership.attach, session.id, living)
    await database.write(ownership.detach, session.id, living, None, at=2)
    with pytest.raises(Conflict, match="declared dead"):
        await database.write(ownership.attach, session.id, dead)
    assert await owner_of(database, session) is None


async def test_an_owner_that_leaves_ends_the_session_once_and_another_does_not(
    database: Database, session: Session, new_worker: NewWorker
) -> None:
    owner, unknown = await new_worker(), await new_worker()
    await database.write(ownership.attach, session.id, owner)

    await database.write(ownership.detach, session.id, unknown, "cli_close", at=5)
    assert (await database.read(sessions.get, session.id)).state == "waiting"
    await database.write(ownership.detach, session.id, owner, "cli_close", at=6)
    await database.write(ownership.detach, session.id, owner, "cli_close", at=7)

    after = await database.read(sessions.get, session.id)
    assert (after.summary.end_reason, after.summary.ended_at) == ("cli_close", 6)


async def test_an_owner_can_hand_the_session_over_to_a_live_worker_and_nobody_else_can(
    database: Database, session: Session, new_worker: NewWorker
) -> None:
    owner, other, dead = await new_worker(), await new_worker(), await new_worker()
    await database.write(ownership.attach, session.id, owner)
    await database.write(workers.mark_dead, dead, GONE, at=1)

    assert not await database.write(ownership.hand_over, session.id, other, other), "it is not the owner"
    assert not await database.write(ownership.hand_over, session.id, owner, dead)
    assert await owner_of(database, session) == owner
    assert await database.write(ownership.hand_over, session.id, owner, other)
    assert await owner_of(database, session) == other


async def test_an_owner_that_leaves_during_a_turn_of_another_worker_passes_the_session_on(
    database: Database, session: Session, new_worker: NewWorker
) -> None:
    owner, visitor = await new_worker(), await new_worker()
    await database.write(ownership.attach, session.id, owner)
    await database.write(leases.take, session.id, visitor)

    await database.write(ownership.detach, session.id, owner, "cli_close", at=1)

    assert await owner_of(database, session) == visitor
    assert (await database.read(sessions.get, session.id)).state == "waiting"


async def test_a_worker_is_cleared_when_it_has_ended_and_owns_nothing(
    database: Database, session: Session, worker: str
) -> None:
    await database.write(ownership.attach, session.id, worker)
    assert not await database.write(workers.mark_cleared, worker, at=1), "it is alive"
    await database.write(workers.mark_dead, worker, GONE, at=1)
    assert not await database.write(workers.mark_cleared, worker, at=2), "it has a session open"
    [dead] = await database.read(workers.list_uncleared)

    assert await database.read(ownership.list_owned, dead.id) == [session.id]
    done = await database.write(ownership.end_abandoned, session.id, dead, GONE, continued=(), at=3)
    again = await database.write(ownership.end_abandoned, session.id, dead, GONE, continued=(), at=4)

    assert (done, again) == ("ended, because its owner died", None)
    assert await database.write(workers.mark_cleared, worker, at=5)
    assert await database.read(workers.list_uncleared) == []


async def test_the_lists_of_a_sweep_contain_what_needs_work_page_by_page(
    database: Database, new_session: NewSession, worker: str
) -> None:
    quiet, held, *left = [await new_session() for _ in range(5)]
    for session in (held, *left):
        await database.write(log.append_unheld, session.id, [TurnStarted(turn_id="t")], at=1)
    await database.write(leases.take, held.id, worker)
    for session in (quiet, held):
        words = Input("turn-2", "queue", user("later"))
        await database.write(input_queue.put, session.id, words, at=1)

    first = await database.read(ownership.list_orphans, limit=2)
    second = await database.read(ownership.list_orphans, first[-1], limit=2)

    assert [*first, *second] == sorted(session.id for session in left)
    assert await database.read(ownership.list_unclaimed_input) == [quiet.id]
    assert await database.read(ownership.list_unclaimed_input, quiet.id) == []


async def test_only_unused_api_sessions_are_idle(database: Database, new_session: NewSession, worker: str) -> None:
    idle, owned, busy, chat = [await new_session(source=source) for source in ("api", "api", "api", "chat")]
    await database.write(ownership.attach, owned.id, worker)
    await database.write(log.append_unheld, busy.id, [TurnStarted(turn_id="t")], at=1)
    used = idle.summary.updated_at

    assert await database.write(ownership.end_idle, used, at=used) == []
    ended = await database.write(ownership.end_idle, used + 1, at=used + 9)

    assert [(session.id, session.summary.ended_at) for session in ended] == [(idle.id, used)]
    assert (await database.read(sessions.get, chat.id)).state == "waiting"
