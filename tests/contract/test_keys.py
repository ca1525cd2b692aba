"""Idempotency keys: a repeated request is recognised permanently, for its caller and session only."""

import asyncio

import pytest

from holdfast.model.errors import KeyReused
from holdfast.model.session import Session
from holdfast.store.database import Database
from holdfast.store.repos import idempotency, recent_requests
from holdfast.store.repos.recent_requests import WINDOW, RecentRequest
from tests.contract.conftest import NewSession
from tests.contract.store_urls import open_place


async def test_a_repeat_returns_the_turn_of_the_first(database: Database, session: Session) -> None:
    first = await database.write(idempotency.claim, session.id, "me", "key", request="digest", turn_id="turn-1", at=1)
    again = await database.write(idempotency.claim, session.id, "me", "key", request="digest", turn_id="turn-2", at=2)

    assert (first, again) == ("turn-1", "turn-1")


async def test_of_many_concurrent_repeats_one_is_the_first(
    database: Database, another: Database, session: Session
) -> None:
    claims = await asyncio.gather(
        *(
            (database, another)[n % 2].write(
                idempotency.claim, session.id, "me", "key", request="digest", turn_id=f"turn-{n}", at=n
            )
            for n in range(20)
        )
    )

    assert len(set(claims)) == 1


async def test_a_key_reused_for_another_request_is_refused(database: Database, session: Session) -> None:
    await database.write(idempotency.claim, session.id, "me", "key", request="digest", turn_id="turn-1", at=1)

    with pytest.raises(KeyReused, match=f"'key'.*{session.id}"):
        await database.write(idempotency.claim, session.id, "me", "key", request="other", turn_id="turn-2", at=2)
    assert (
        await database.write(idempotency.claim, session.id, "me", "key", request="digest", turn_id="turn-3", at=3)
        == "turn-1"
    )


async def test_a_key_is_bound_to_its_caller_and_its_session(database: Database, new_session: NewSession) -> None:
    first, second = await new_session(), await new_session()
    claims = [(first.id, "me"), (first.id, "you"), (second.id, "me")]

    for number, (session_id, caller) in enumerate(claims):
        turn_id = f"turn-{number}"
        claimed = await database.write(
            idempotency.claim, session_id, caller, "key", request=f"digest {number}", turn_id=turn_id, at=1
        )
        assert claimed == turn_id


async def test_a_key_is_remembered_after_the_store_was_closed(place: str, database: Database, session: Session) -> None:
    await database.write(idempotency.claim, session.id, "me", "key", request="digest", turn_id="turn-1", at=1)
    await database.close()
    again = await open_place(place)

    assert (
        await again.write(idempotency.claim, session.id, "me", "key", request="digest", turn_id="turn-2", at=2)
        == "turn-1"
    )
    await again.close()


async def test_a_key_whose_transaction_was_rolled_back_is_free_again(database: Database, session: Session) -> None:
    def claim_and_stumble(tx) -> None:
        idempotency.claim(tx, session.id, "me", "key", request="digest", turn_id="turn-1", at=1)
        raise KeyError("stumbled")

    with pytest.raises(KeyError):
        await database.write(claim_and_stumble)

    assert (
        await database.write(idempotency.claim, session.id, "me", "key", request="other", turn_id="turn-2", at=2)
        == "turn-2"
    )


async def test_an_expired_request_is_not_found_and_can_be_deleted(database: Database, session: Session) -> None:
    old, new = RecentRequest(session.id, "turn-1", "worker-1"), RecentRequest(session.id, "turn-2", "worker-1")
    await database.write(recent_requests.add, "me", "digest", old, at=1)
    await database.write(recent_requests.add, "me", "digest", new, at=2)

    assert await database.read(recent_requests.find_newest, "me", "digest", at=2 + WINDOW) == new
    assert await database.read(recent_requests.find_newest, "me", "digest", at=3 + WINDOW) is None
    await database.write(recent_requests.delete_expired, at=2 + WINDOW)
    assert await database.read(recent_requests.find_newest, "me", "digest", at=2) == new
    await database.write(recent_requests.delete_expired, at=3 + WINDOW)
    assert await database.read(recent_requests.find_newest, "me", "digest", at=2) is None
