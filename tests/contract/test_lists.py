"""Lists of sessions: every session is in them, in a plain order, page by page."""

import base64
from pathlib import Path

import pytest

from holdfast.model.errors import Invalid
from holdfast.model.event import Quarantined, SessionOpened, TurnStarted
from holdfast.model.session import Session
from holdfast.store import approvals, leases, log, owners, sessions
from holdfast.store.database import Database
from holdfast.store.sessions import EVERYTHING, Filters
from tests.contract.conftest import NewSession
from tests.contract.logs import user
from tests.contract.places import KINDS, new_place, open_place
from tests.fakes.clock import FakeClock


async def all_pages(database: Database, filters: Filters = EVERYTHING, limit: int = 7) -> list[Session]:
    found, cursor = [], None
    while True:
        page = await database.read(sessions.list_page, filters, limit=limit, cursor=cursor)
        assert len(page.sessions) == limit or page.next is None
        found += page.sessions
        cursor = page.next
        if cursor is None:
            return found


async def ids_of(database: Database, filters: Filters) -> set[str]:
    return {session.id for session in await all_pages(database, filters)}


@pytest.fixture
async def odd_sessions(database: Database, new_session: NewSession, worker: str, clock: FakeClock) -> dict[str, str]:
    """One session of every sort, by what is odd about it."""
    made = {
        "plain": await new_session(),
        "api": await new_session(source="api", channel="api:key", model="openai:gpt"),
        "side": await new_session(side_of="hf-other"),
        "trashed": await new_session(),
        "pinned": await new_session(),
        "ended": await new_session(),
        "running": await new_session(),
        "interrupted": await new_session(),
        "quarantined": await new_session(),
        "trashed-side": await new_session(side_of="hf-other"),
    }
    now = clock.now()
    for name in ("trashed", "trashed-side"):
        await database.write(sessions.trash, made[name].id, at=now)
    await database.write(sessions.pin, made["pinned"].id, pinned=True, at=now)
    await database.write(sessions.end, made["ended"].id, "user", at=now)
    for name in ("running", "interrupted", "quarantined"):
        lease = await database.write(leases.take, made[name].id, worker)
        await database.write(log.append, lease, [TurnStarted(turn_id="turn-1"), user("go")], at=now)
        if name == "quarantined":
            await database.write(log.append, lease, [Quarantined(reason="tried three times")], at=now)
        if name != "running":
            await database.write(leases.release, lease)
    return {name: session.id for name, session in made.items()}


async def test_a_list_of_everything_is_the_whole_store(database: Database, odd_sessions: dict[str, str]) -> None:
    listed = await all_pages(database)

    assert {session.id for session in listed} == set(odd_sessions.values())
    assert len(listed) == (await database.read(lambda tx: tx.one("sessions.count")))[0]
    for session in listed:
        assert session == await database.read(sessions.get, session.id)


@pytest.mark.parametrize(
    ("filters", "names"),
    [
        (Filters(), "plain api pinned ended running interrupted quarantined"),
        (Filters(sides=1), "plain api side pinned ended running interrupted quarantined"),
        (Filters(trashed=1), "trashed"),
        (Filters(trashed=1, sides=1), "trashed trashed-side"),
        (Filters(source="api"), "api"),
        (Filters(source="cron"), ""),
        (Filters(channel="api:key"), "api"),
        (Filters(model="openai:gpt"), "api"),
        (Filters(pinned=1), "pinned"),
        (Filters(pinned=0), "plain api ended running interrupted quarantined"),
        (Filters(state="ended"), "ended"),
        (Filters(state="running"), "running"),
        (Filters(state="interrupted"), "interrupted"),
        (Filters(state="quarantined"), "quarantined"),
        (Filters(state="waiting"), "plain api pinned"),
        (Filters(state="waiting", source="api", pinned=0), "api"),
    ],
)
async def test_each_filter_shows_what_it_says(
    database: Database, odd_sessions: dict[str, str], filters: Filters, names: str
) -> None:
    assert await ids_of(database, filters) == {odd_sessions[name] for name in names.split()}


async def test_the_state_in_a_list_is_the_state_of_the_session(
    database: Database, odd_sessions: dict[str, str]
) -> None:
    for state in ("running", "waiting", "interrupted", "quarantined", "ended"):
        for session in await all_pages(database, Filters(state=state, trashed=2, sides=1)):
            assert session.state == state


async def test_the_newest_activity_comes_first_over_many_pages(
    database: Database, new_session: NewSession, clock: FakeClock
) -> None:
    made = [await new_session() for _ in range(100)]
    clock.pass_seconds(1)
    await database.write(sessions.pin, made[0].id, pinned=True, at=clock.now())
    listed = [session.id for session in await all_pages(database)]

    assert listed == [made[0].id, *(session.id for session in reversed(made[1:]))]


@pytest.mark.parametrize("limit", [1, 2, 5, 30, 31, 1000])
async def test_sessions_of_the_same_instant_are_each_listed_once(database: Database, limit: int) -> None:
    for number in range(30):
        await database.write(sessions.create, f"hf-{number:020}", SessionOpened(source="chat"), at=5)

    listed = [session.id for session in await all_pages(database, limit=limit)]
    assert listed == [f"hf-{number:020}" for number in reversed(range(30))]


async def test_sessions_made_or_used_between_two_pages_disturb_none_of_the_others(
    database: Database, new_session: NewSession, clock: FakeClock
) -> None:
    made = [await new_session() for _ in range(20)]
    first = await database.read(sessions.list_page, EVERYTHING, limit=10)
    clock.pass_seconds(1)
    await new_session()
    await database.write(sessions.pin, made[3].id, pinned=True, at=clock.now())
    second = await database.read(sessions.list_page, EVERYTHING, limit=10, cursor=first.next)

    assert [session.id for session in first.sessions] == [session.id for session in reversed(made[10:])]
    assert [session.id for session in second.sessions] == [
        session.id for session in reversed(made[:10]) if session.id != made[3].id
    ]
    assert second.next is None


async def test_an_empty_store_has_an_empty_list(database: Database) -> None:
    assert await database.read(sessions.list_page, EVERYTHING, limit=10) == sessions.Page([], None)


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_page_of_no_length_is_refused(database: Database, session: Session, limit: int) -> None:
    with pytest.raises(Invalid, match="at least one"):
        await database.read(sessions.list_page, EVERYTHING, limit=limit)


async def test_a_cursor_of_another_list_is_refused(database: Database, odd_sessions: dict[str, str]) -> None:
    page = await database.read(sessions.list_page, Filters(), limit=2)

    with pytest.raises(Invalid, match="another list"):
        await database.read(sessions.list_page, Filters(state="waiting"), limit=2, cursor=page.next)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_cursor_of_another_store_is_refused(
    database: Database, odd_sessions: dict[str, str], tmp_path: Path, kind: str
) -> None:
    page = await database.read(sessions.list_page, Filters(), limit=2)
    stranger = await open_place(new_place(kind, tmp_path / "elsewhere"))

    with pytest.raises(Invalid, match="another store"):
        await stranger.read(sessions.list_page, Filters(), limit=2, cursor=page.next)
    await stranger.close()


@pytest.mark.parametrize("cursor", ["x", "garbage", "日本語", "AAAA", "\udcff", " ", "a" * 10_000, "YSBiIGM", "0" * 7])
async def test_a_garbled_cursor_is_refused(database: Database, odd_sessions: dict[str, str], cursor: str) -> None:
    with pytest.raises(Invalid, match="cursor"):
        await database.read(sessions.list_page, Filters(), limit=2, cursor=cursor)


@pytest.mark.parametrize("at", ["9" * 40, "-1", "0x10", "", "9" * 5_000, "1e9"])
async def test_a_cursor_whose_time_was_tampered_with_is_refused(
    database: Database, odd_sessions: dict[str, str], at: str
) -> None:
    page = await database.read(sessions.list_page, Filters(), limit=2)
    mark, _, session_id = base64.urlsafe_b64decode(page.next + "==").decode().split(" ")
    forged = base64.urlsafe_b64encode(f"{mark} {at} {session_id}".encode()).decode()

    with pytest.raises(Invalid, match="cursor"):
        await database.read(sessions.list_page, Filters(), limit=2, cursor=forged)


async def test_reading_lists_changes_nothing(database: Database, odd_sessions: dict[str, str]) -> None:
    before = await all_pages(database)
    for _ in range(20):
        await all_pages(database, Filters())
        await all_pages(database, Filters(trashed=1))

    assert await all_pages(database) == before


async def test_what_is_in_hand_is_found_among_all_others(
    database: Database, odd_sessions: dict[str, str], new_session: NewSession, worker: str
) -> None:
    owned = await new_session()
    await database.write(owners.attach, owned.id, worker)

    found = await database.read(sessions.in_hand, 10)

    names = {session_id: name for name, session_id in odd_sessions.items()} | {owned.id: "owned"}
    assert {names[session.id] for session in found} == {"running", "interrupted", "quarantined", "owned"}
    assert [session.id for session in found] == sorted((s.id for s in found), reverse=True), "the newest come first"
    assert len(await database.read(sessions.in_hand, 2)) == 2


async def test_questions_of_all_sessions_are_listed_the_oldest_first(
    database: Database, new_session: NewSession
) -> None:
    made = [await new_session() for _ in range(3)]
    for number, session in enumerate(made):
        await database.write(approvals.ask, session.id, "turn-1", "call-1", "May I?", at=10 - number)
    await database.write(approvals.answer, made[1].id, "turn-1", "call-1", allowed=True, by="me", at=20)

    found = await database.read(approvals.every_open, 10)

    assert [one.session_id for one in found] == [made[2].id, made[0].id]
    assert len(await database.read(approvals.every_open, 1)) == 1


@pytest.mark.parametrize(
    "filters",
    [
        EVERYTHING,
        Filters(),
        Filters(state="quarantined"),
        Filters(pinned=1),
        Filters(trashed=1),
        Filters(source="api"),
        Filters(model="nobody:nothing"),
        Filters(sides=1, state="waiting"),
    ],
)
async def test_a_list_of_rare_sessions_is_the_same_list(
    database: Database, odd_sessions: dict[str, str], filters: Filters
) -> None:
    usual = (await database.read(sessions.list_page, filters, limit=100, rare=False)).sessions
    found: list[Session] = []
    cursor: str | None = None
    while cursor is not None or not found:
        page = await database.read(sessions.list_page, filters, limit=3, cursor=cursor, rare=True)
        found += page.sessions
        cursor = page.next
        if cursor is None:
            break

    assert [one.id for one in found] == [one.id for one in usual]
    assert [one.id for one in await all_pages(database, filters, limit=3)] == [one.id for one in usual]
    every = (await database.read(sessions.list_page, EVERYTHING, limit=100, rare=False)).sessions
    assert {one.id for one in every if sessions.fits(one, filters)} == {one.id for one in usual}
