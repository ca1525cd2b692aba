"""Owners: who has a session open, what becomes of it when that one goes, and the lists that a sweep works through."""

import pytest

from holdfast.model.errors import Conflict
from holdfast.model.event import TurnStarted
from holdfast.model.session import Session
from holdfast.store import inputs, leases, log, owners, sessions, workers
from holdfast.store.database import Database
from holdfast.store.inputs import Input
from tests.conftest import NewWorker
from tests.contract.conftest import NewSession
from tests.contract.logs import user

GONE = "it was killed"


async def owner_of(database: Database, session: Session) -> str | None:
    return (await database.read(sessions.get, session.id)).owner_worker


async def test_a_session_has_one_owner_at_a_time(database: Database, session: Session, new_worker: NewWorker) -> None:
    first, second = await new_worker(), await new_worker()

    assert await database.write(owners.attach, session.id, first)
    assert await database.write(owners.attach, session.id, first), "again is no error"
    assert not await database.write(owners.attach, session.id, second)
    assert await owner_of(database, session) == first


async def test_what_a_buried_worker_had_open_can_be_had_and_it_can_have_nothing(
    database: Database, session: Session, new_worker: NewWorker
) -> None:
    dead, living = await new_worker(), await new_worker()
    await database.write(owners.attach, session.id, dead)
    await database.write(workers.bury, dead, GONE, at=1)

    assert await database.write(owners.attach, session.id, living)
    await database.write(owners.detach, session.id, living, None, at=2)
    with pytest.raises(Conflict, match="declared dead"):
        await database.write(owners.attach, session.id, dead)
    assert await owner_of(database, session) is None


async def test_an_owner_that_leaves_ends_the_session_once_and_another_does_not(
    database: Database, session: Session, new_worker: NewWorker
) -> None:
    owner, stranger = await new_worker(), await new_worker()
    await database.write(owners.attach, session.id, owner)

    await database.write(owners.detach, session.id, stranger, "cli_close", at=5)
    assert (await database.read(sessions.get, session.id)).state == "waiting"
    await database.write(owners.detach, session.id, owner, "cli_close", at=6)
    await database.write(owners.detach, session.id, owner, "cli_close", at=7)

    after = await database.read(sessions.get, session.id)
    assert (after.summary.end_reason, after.summary.ended_at) == ("cli_close", 6)


async def test_an_owner_can_hand_the_session_over_to_a_living_worker_and_nobody_else_can(
    database: Database, session: Session, new_worker: NewWorker
) -> None:
    owner, other, dead = await new_worker(), await new_worker(), await new_worker()
    await database.write(owners.attach, session.id, owner)
    await database.write(workers.bury, dead, GONE, at=1)

    assert not await database.write(owners.hand_over, session.id, other, other), "it is not theirs to give"
    assert not await database.write(owners.hand_over, session.id, owner, dead)
    assert await owner_of(database, session) == owner
    assert await database.write(owners.hand_over, session.id, owner, other)
    assert await owner_of(database, session) == other


async def test_an_owner_that_leaves_while_another_is_at_work_hands_the_session_on(
    database: Database, session: Session, new_worker: NewWorker
) -> None:
    owner, visitor = await new_worker(), await new_worker()
    await database.write(owners.attach, session.id, owner)
    await database.write(leases.take, session.id, visitor)

    await database.write(owners.detach, session.id, owner, "cli_close", at=1)

    assert await owner_of(database, session) == visitor
    assert (await database.read(sessions.get, session.id)).state == "waiting"


async def test_a_worker_is_cleared_when_it_has_ended_and_nothing_of_it_is_left(
    database: Database, session: Session, worker: str
) -> None:
    await database.write(owners.attach, session.id, worker)
    assert not await database.write(workers.clear, worker, at=1), "it lives"
    await database.write(workers.bury, worker, GONE, at=1)
    assert not await database.write(workers.clear, worker, at=2), "it has a session open"
    [dead] = await database.read(workers.uncleared)

    assert await database.read(owners.owned, dead.id) == [session.id]
    done = await database.write(owners.reap, session.id, dead, GONE, continued=(), at=3)
    again = await database.write(owners.reap, session.id, dead, GONE, continued=(), at=4)

    assert (done, again) == ("ended as reaped", None)
    assert await database.write(workers.clear, worker, at=5)
    assert await database.read(workers.uncleared) == []


async def test_the_lists_of_a_sweep_hold_what_needs_seeing_to_page_by_page(
    database: Database, new_session: NewSession, worker: str
) -> None:
    quiet, held, *left = [await new_session() for _ in range(5)]
    for session in (held, *left):
        await database.write(log.append_unheld, session.id, [TurnStarted(turn_id="t")], at=1)
    await database.write(leases.take, held.id, worker)
    for session in (quiet, held):
        words = Input("turn-2", "queue", user("later"))
        await database.write(inputs.put, session.id, words, at=1)

    first = await database.read(owners.orphans, limit=2)
    second = await database.read(owners.orphans, first[-1], limit=2)

    assert [*first, *second] == sorted(session.id for session in left)
    assert await database.read(owners.unheard) == [quiet.id]
    assert await database.read(owners.unheard, quiet.id) == []


async def test_only_api_sessions_that_nobody_has_used_since_are_idle(
    database: Database, new_session: NewSession, worker: str
) -> None:
    idle, owned, busy, chat = [await new_session(source=source) for source in ("api", "api", "api", "chat")]
    await database.write(owners.attach, owned.id, worker)
    await database.write(log.append_unheld, busy.id, [TurnStarted(turn_id="t")], at=1)
    used = idle.summary.updated_at

    assert await database.write(owners.end_idle, used, at=used) == []
    ended = await database.write(owners.end_idle, used + 1, at=used + 9)

    assert [(session.id, session.summary.ended_at) for session in ended] == [(idle.id, used)]
    assert (await database.read(sessions.get, chat.id)).state == "waiting"
