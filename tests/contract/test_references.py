"""How a reference finds its session: by id, alias, title or the beginning of an id."""

import pytest

from holdfast.model.errors import Ambiguous, Conflict, NotFound
from holdfast.model.event import SessionOpened
from holdfast.model.session import Session
from holdfast.store.database import Database
from holdfast.store.repos import aliases, sessions
from tests.contract.conftest import NewSession
from tests.fakes.clock import FakeClock


async def test_an_id_finds_its_session(database: Database, session: Session) -> None:
    found = await database.read(sessions.resolve, session.id)

    assert (found.session, found.by, found.others) == (session, "id", 0)


async def test_an_alias_finds_its_session(database: Database, session: Session) -> None:
    await database.write(aliases.add, "20260101_old_id", session.id, at=1)

    assert (await database.read(sessions.resolve, "20260101_old_id")).by == "alias"
    assert (await database.read(sessions.resolve, "20260101_old_id")).session == session


async def test_an_alias_and_a_channel_are_looked_up_together(database: Database, new_session: NewSession) -> None:
    named, current = await new_session(), await new_session()
    await database.write(aliases.add, "old-id", named.id, at=1)
    await database.write(aliases.set_channel_session, "chat", current.id, at=1)

    async def find(alias: str | None, channel: str | None) -> tuple[str | None, str | None]:
        return await database.write(aliases.find_alias_and_channel, alias, channel)

    assert await find("old-id", "chat") == (named.id, current.id)
    assert await find(None, "chat") == (None, current.id)
    assert await find("chat", None) == (None, None)


async def test_a_title_finds_the_most_recent_session_and_counts_the_others(
    database: Database, new_session: NewSession, clock: FakeClock
) -> None:
    first, second, third = [await new_session(title="Plans") for _ in range(3)]
    await new_session(title="Plans for May")
    clock.pass_seconds(1)
    await database.write(sessions.pin, second.id, pinned=True, at=clock.now())
    found = await database.read(sessions.resolve, "Plans")

    assert (found.session.id, found.by, found.others) == (second.id, "title", 2)
    await database.write(sessions.trash, third.id, at=clock.now())
    await database.write(sessions.trash, second.id, at=clock.now())
    found = await database.read(sessions.resolve, "Plans")
    assert (found.session.id, found.others) == (first.id, 0)


@pytest.mark.parametrize("title", ["plans", "Plan", "%", "Pl*"])
async def test_a_title_must_be_exact(database: Database, new_session: NewSession, title: str) -> None:
    await new_session(title="Plans")

    with pytest.raises(NotFound):
        await database.read(sessions.resolve, title)


@pytest.mark.parametrize("ref", ["hf-0123456", "hf-012", "012345", "hf-0123456789abcdefghj"])
async def test_a_prefix_of_an_id_finds_its_session(database: Database, new_session: NewSession, ref: str) -> None:
    session = await new_session("hf-0123456789abcdefghjk")
    await new_session("hf-00000000000000000000")
    found = await database.read(sessions.resolve, ref)

    assert (found.session, found.by) == (session, "prefix")


async def test_an_ambiguous_prefix_names_the_candidates(database: Database, new_session: NewSession) -> None:
    one, two = await new_session("hf-01234500000000000001"), await new_session("hf-01234500000000000002")
    await new_session("hf-01234600000000000003")

    with pytest.raises(Ambiguous, match=f"{one.id}.*{two.id}"):
        await database.read(sessions.resolve, "hf-012345")
    assert (await database.read(sessions.resolve, "hf-012346")).by == "prefix"


@pytest.mark.parametrize("ref", ["", "h", "hf-", "hf-01", "01234"])
async def test_a_prefix_that_is_too_short_finds_nothing_and_says_what_is_needed(
    database: Database, new_session: NewSession, ref: str
) -> None:
    await new_session("hf-0123456789abcdefghjk")

    with pytest.raises(NotFound, match="6 characters"):
        await database.read(sessions.resolve, ref)


@pytest.mark.parametrize("ref", ["hf-zzzzzz", "no such title", "hf-0123456789abcdefghjkk", "hf-______", "hf-%%%%%%"])
async def test_an_unknown_reference_is_not_found(database: Database, new_session: NewSession, ref: str) -> None:
    await new_session("hf-0123456789abcdefghjk")

    with pytest.raises(NotFound, match="no session"):
        await database.read(sessions.resolve, ref)


@pytest.mark.parametrize(
    "ref", ["nul\0byte", "\udcff\udcfe from a command line", "\ud83d", "日本語日本語", "x" * 100_000]
)
async def test_an_invalid_reference_is_not_found(database: Database, ref: str) -> None:
    with pytest.raises(NotFound):
        await database.read(sessions.resolve, ref)


async def test_a_session_in_the_trash_is_found_by_full_names_only_and_only_on_request(
    database: Database, new_session: NewSession
) -> None:
    session = await new_session("hf-0123456789abcdefghjk", title="Plans")
    await database.write(aliases.add, "old-id", session.id, at=1)
    await database.write(sessions.trash, session.id, at=1)

    for ref in (session.id, "old-id"):
        with pytest.raises(NotFound, match=f"trash.*restore {session.id}"):
            await database.read(sessions.resolve, ref)
        assert (await database.read(sessions.resolve, ref, trashed=True)).session.id == session.id
    for ref in ("Plans", "hf-0123456"):
        with pytest.raises(NotFound):
            await database.read(sessions.resolve, ref, trashed=True)


async def test_an_id_precedes_an_alias_a_title_and_a_prefix(database: Database, new_session: NewSession) -> None:
    by_id = await new_session("hf-01234500000000000001")
    titled = await new_session(title=by_id.id)
    assert (await database.read(sessions.resolve, by_id.id)).session == by_id

    await database.write(aliases.add, "hf-012345", titled.id, at=1)
    named = await new_session(title="hf-012345")
    assert (await database.read(sessions.resolve, "hf-012345")).session.id == titled.id

    await database.write(sessions.rename, named.id, "hf-0123450", at=1)
    assert (await database.read(sessions.resolve, "hf-0123450")).session.id == named.id


# aliases


async def test_an_alias_keeps_its_first_session(database: Database, new_session: NewSession) -> None:
    first, second = await new_session(), await new_session()
    await database.write(aliases.add, "old-id", first.id, at=1)
    await database.write(aliases.add, "old-id", first.id, at=2)

    with pytest.raises(Conflict, match=first.id):
        await database.write(aliases.add, "old-id", second.id, at=3)
    assert await database.read(aliases.find, "old-id") == first.id
    assert await database.read(aliases.find, "no-such-id") is None


async def test_a_session_may_have_many_aliases(database: Database, new_session: NewSession) -> None:
    session, other = await new_session(), await new_session()
    for alias in ("c", "a", "b"):
        await database.write(aliases.add, alias, session.id, at=1)
    await database.write(aliases.add, "d", other.id, at=1)

    assert await database.read(aliases.list_by_session, session.id) == ["a", "b", "c"]


# channels


async def test_a_channel_points_to_its_current_session(database: Database, new_session: NewSession) -> None:
    first, second = await new_session(), await new_session()
    assert await database.read(aliases.get_channel_session, "telegram:1:2") is None

    for session in (first, second, first):
        await database.write(aliases.set_channel_session, "telegram:1:2", session.id, at=1)
        assert await database.read(aliases.get_channel_session, "telegram:1:2") == session.id


async def test_a_channel_without_a_session_gets_one_and_keeps_it(database: Database) -> None:
    opened = SessionOpened(source="gateway", channel="telegram:1:2")
    first, new = await database.write(sessions.create_for_channel, "hf-1", opened, at=1)
    again, newer = await database.write(sessions.create_for_channel, "hf-2", opened, at=2)
    other, newest = await database.write(
        sessions.create_for_channel, "hf-3", SessionOpened(source="gateway", channel="telegram:1:3"), at=3
    )

    assert (new, newer, newest) == (True, False, True)
    assert again == first
    assert (other.id, other.summary.channel) == ("hf-3", "telegram:1:3")


async def test_a_channel_continues_with_the_session_it_was_given(database: Database, new_session: NewSession) -> None:
    opened = SessionOpened(source="gateway", channel="telegram:1:2")
    await database.write(sessions.create_for_channel, "hf-1", opened, at=1)
    session = await new_session(channel="telegram:1:2")
    await database.write(aliases.set_channel_session, "telegram:1:2", session.id, at=2)

    assert await database.write(sessions.create_for_channel, "hf-3", opened, at=3) == (session, False)
