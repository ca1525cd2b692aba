"""Links to sessions in every store: found only by their token, until they expire, are revoked, or the session is deleted."""

import pytest

from holdfast.interop import sharing
from holdfast.model.errors import Conflict, Invalid, NotFound
from holdfast.model.ids import Ids
from holdfast.model.times import DAY
from holdfast.store.database import Database
from holdfast.store.repos import log, session_pruning, sessions, shares
from tests.contract.conftest import NewSession
from tests.contract.logs import user

AT = 1_800_000_000_000_000


@pytest.fixture
def ids() -> Ids:
    return Ids(lambda: AT)


async def test_a_link_is_found_by_its_token_until_it_expires(
    database: Database, new_session: NewSession, ids: Ids
) -> None:
    session = await new_session()
    new = await sharing.create(database, ids, session.id, days=2, by="me", at=AT)
    await database.write(log.append_unheld, session.id, [user("said later")], at=AT + 1)

    found = await database.read(shares.find, new.token, at=AT + 2 * DAY - 1)
    assert (found.session_id, found.upto_seq, found.created_by) == (session.id, session.seq, "me")
    for token, at in ((new.token, AT + 2 * DAY), (new.token[:-1], AT), (found.digest, AT), (found.id, AT), ("", AT)):
        with pytest.raises(NotFound):
            await database.read(shares.find, token, at=at)


async def test_the_store_does_not_contain_the_token(database: Database, new_session: NewSession, ids: Ids) -> None:
    new = await sharing.create(database, ids, (await new_session()).id, days=1, by="me", at=AT)

    assert len(new.token) >= 40 and new.token not in repr(new.share)


async def test_a_revoked_link_no_longer_works_and_stays_as_a_record(
    database: Database, new_session: NewSession, ids: Ids
) -> None:
    session = await new_session()
    first, second, third = [
        await sharing.create(database, ids, session.id, days=1, by="me", at=AT + n) for n in range(3)
    ]
    found = await database.write(lambda tx: shares.resolve(tx, second.share.id))
    await database.write(shares.revoke, found, by="you", at=AT + 5)
    with pytest.raises(Conflict, match="already revoked by you"):
        await database.write(shares.revoke, second.share.id, by="me", at=AT + 6)
    assert await database.write(shares.revoke_all, session.id, by="them", at=AT + 7) == 2
    assert await database.write(shares.revoke_all, session.id, by="them", at=AT + 8) == 0

    for new in (first, second, third):
        with pytest.raises(NotFound):
            await database.read(shares.find, new.token, at=AT + 9)
    kept = await database.read(shares.list_by_session, session.id)
    assert [(one.id, one.revoked_by) for one in kept] == [
        (third.share.id, "them"),
        (second.share.id, "you"),
        (first.share.id, "them"),
    ]


async def test_a_link_does_not_work_in_the_trash_and_is_deleted_with_its_session(
    database: Database, new_session: NewSession, ids: Ids
) -> None:
    session = await new_session()
    new = await sharing.create(database, ids, session.id, days=1, by="me", at=AT)
    await database.write(sessions.trash, session.id, at=AT + 1)
    with pytest.raises(NotFound):
        await database.read(shares.find, new.token, at=AT + 2)
    with pytest.raises(Conflict, match="trash"):
        await sharing.create(database, ids, session.id, days=1, by="me", at=AT + 3)
    await database.write(sessions.restore, session.id, at=AT + 4)
    assert (await database.read(shares.find, new.token, at=AT + 5)).id == new.share.id

    await database.write(sessions.trash, session.id, at=AT + 6)
    assert await database.write(session_pruning.prune, session.id, before=AT + 7)
    assert await database.read(shares.list_by_session, session.id) == []


@pytest.mark.parametrize("days", [0, -1, 366])
async def test_a_senseless_expiry_is_rejected(database: Database, new_session: NewSession, ids: Ids, days: int) -> None:
    with pytest.raises(Invalid, match="1 to 365 days"):
        await sharing.create(database, ids, (await new_session()).id, days=days, by="me", at=AT)
