"""Idempotency keys: a repeat of a request is recognised for ever, for its caller and session only."""

import asyncio

import pytest

from holdfast.model.errors import KeyReused
from holdfast.model.session import Session
from holdfast.store import keys
from holdfast.store.database import Database
from tests.contract.conftest import NewSession
from tests.contract.places import open_place


async def test_a_repeat_leads_to_the_turn_of_the_first(database: Database, session: Session) -> None:
    first = await database.write(keys.claim, session.id, "me", "key", request="digest", turn_id="turn-1", at=1)
    again = await database.write(keys.claim, session.id, "me", "key", request="digest", turn_id="turn-2", at=2)

    assert (first, again) == ("turn-1", "turn-1")


async def test_of_many_repeats_at_once_one_is_the_first(
    database: Database, another: Database, session: Session
) -> None:
    claims = await asyncio.gather(
        *(
            (database, another)[n % 2].write(
                keys.claim, session.id, "me", "key", request="digest", turn_id=f"turn-{n}", at=n
            )
            for n in range(20)
        )
    )

    assert len(set(claims)) == 1


async def test_a_key_that_comes_back_with_another_request_is_refused(database: Database, session: Session) -> None:
    await database.write(keys.claim, session.id, "me", "key", request="digest", turn_id="turn-1", at=1)

    with pytest.raises(KeyReused, match=f"'key'.*{session.id}"):
        await database.write(keys.claim, session.id, "me", "key", request="other", turn_id="turn-2", at=2)
    assert (
        await database.write(keys.claim, session.id, "me", "key", request="digest", turn_id="turn-3", at=3) == "turn-1"
    )


async def test_a_key_is_bound_to_its_caller_and_its_session(database: Database, new_session: NewSession) -> None:
    first, second = await new_session(), await new_session()
    claims = [(first.id, "me"), (first.id, "you"), (second.id, "me")]

    for number, (session_id, caller) in enumerate(claims):
        turn_id = f"turn-{number}"
        claimed = await database.write(
            keys.claim, session_id, caller, "key", request=f"digest {number}", turn_id=turn_id, at=1
        )
        assert claimed == turn_id


async def test_a_key_is_remembered_after_the_store_was_closed(place: str, database: Database, session: Session) -> None:
    await database.write(keys.claim, session.id, "me", "key", request="digest", turn_id="turn-1", at=1)
    await database.close()
    again = await open_place(place)

    assert await again.write(keys.claim, session.id, "me", "key", request="digest", turn_id="turn-2", at=2) == "turn-1"
    await again.close()


async def test_a_claim_that_was_rolled_back_is_free_again(database: Database, session: Session) -> None:
    def claim_and_stumble(tx) -> None:
        keys.claim(tx, session.id, "me", "key", request="digest", turn_id="turn-1", at=1)
        raise KeyError("stumbled")

    with pytest.raises(KeyError):
        await database.write(claim_and_stumble)

    assert (
        await database.write(keys.claim, session.id, "me", "key", request="other", turn_id="turn-2", at=2) == "turn-2"
    )
