"""Lists of sessions: every session is listed, in a defined order, page by page."""

import base64
from pathlib import Path

import pytest

from holdfast.model.answer import Answer
from holdfast.model.errors import Invalid
from holdfast.model.event import Quarantined, SessionOpened, TurnStarted
from holdfast.model.session import Session
from holdfast.store.database import Database
from holdfast.store.repos import approvals, leases, log, ownership, session_list, sessions
from holdfast.store.repos.session_list import EVERYTHING, SessionFilters
from tests.contract.conftest import NewSession
from tests.contract.logs import user
from tests.contract.store_urls import KINDS, new_place, open_place
from tests.fakes.clock import FakeClock


async def all_pages(database: Database, filters: SessionFilters = EVERYTHING, limit: int = 7) -> list[Session]:
    found, cursor = [], None
    while True:
        page = await database.read(session_list.list_page, filters, limit=limit, cursor=cursor)
        assert len(page.sessions) == limit or page.next is None
        found += page.sessions
        cursor = page.next
        if cursor is None:
            return found


async def ids_of(database: Database, filters: SessionFilters) -> set[str]:
    return {session.id for session in await all_pages(database, filters)}


@pytest.fixture
async def odd_sessions(database: Database, new_session: NewSession, worker: str, clock: FakeClock) -> dict[str, str]:
    """One session of every kind, by what is special about it."""
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
        (SessionFilters(), "plain api pinned ended running interrupted quarantined"),
        (SessionFilters(sides=1), "plain api side pinned ended running interrupted quarantined"),
        (SessionFilters(trashed=1), "trashed"),
        (SessionFilters(trashed=1, sides=1), "trashed trashed-side"),
        (SessionFilters(source="api"), "api"),
        (SessionFilters(source="cron"), ""),
        (SessionFilters(channel="api:key"), "api"),
        (SessionFilters(model="openai:gpt"), "api"),
        (SessionFilters(pinned=1), "pinned"),
        (SessionFilters(pinned=0), "plain api ended running interrupted quarantined"),
        (SessionFilters(state="ended"), "ended"),
        (SessionFilters(state="running"), "running"),
        (SessionFilters(state="interrupted"), "interrupted"),
        (SessionFilters(state="quarantined"), "quarantined"),
        (SessionFilters(state="waiting"), "plain api pinned"),
        (SessionFilters(state="waiting", source="api", pinned=0), "api"),
    ],
)
async def test_each_filter_shows_what_it_says(
    database: Database, odd_sessions: dict[str, str], filters: SessionFilters, names: str
) -> None:
    assert await ids_of(database, filters) == {odd_sessions[name] for name in names.split()}


async def test_the_state_in_a_list_is_the_state_of_the_session(
    database: Database, odd_sessions: dict[str, str]
) -> None:
    for state in ("running", "waiting", "interrupted", "quarantined", "ended"):
        for session in await all_pages(database, SessionFilters(state=state, trashed=2, sides=1)):
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
async def test_sessions_with_the_same_time_are_each_listed_once(database: Database, limit: int) -> None:
    for number in range(30):
        await database.write(sessions.create, f"hf-{number:020}", SessionOpened(source="chat"), at=5)

    listed = [session.id for session in await all_pages(database, limit=limit)]
    assert listed == [f"hf-{number:020}" for number in reversed(range(30))]


async def test_sessions_created_or_used_between_two_pages_disturb_no_others(
    database: Database, new_session: NewSession, clock: FakeClock
) -> None:
    made = [await new_session() for _ in range(20)]
    first = await database.read(session_list.list_page, EVERYTHING, limit=10)
    clock.pass_seconds(1)
    await new_session()
    await database.write(sessions.pin, made[3].id, pinned=True, at=clock.now())
    second = await database.read(session_list.list_page, EVERYTHING, limit=10, cursor=first.next)

    assert [session.id for session in first.sessions] == [session.id for session in reversed(made[10:])]
    assert [session.id for session in second.sessions] == [
        session.id for session in reversed(made[:10]) if session.id != made[3].id
    ]
    assert second.next is None


async def test_an_empty_store_has_an_empty_list(database: Database) -> None:
    assert await database.read(session_list.list_page, EVERYTHING, limit=10) == session_list.SessionPage([], None)


@pytest.mark.parametrize("limit", [0, -1])
async def test_a_page_size_of_zero_is_refused(database: Database, session: Session, limit: int) -> None:
    with pytest.raises(Invalid, match="at least 1"):
        await database.read(session_list.list_page, EVERYTHING, limit=limit)


async def test_a_cursor_of_another_list_is_refused(database: Database, odd_sessions: dict[str, str]) -> None:
    page = await database.read(session_list.list_page, SessionFilters(), limit=2)

    with pytest.raises(Invalid, match="another list"):
        await database.read(session_list.list_page, SessionFilters(state="waiting"), limit=2, cursor=page.next)


@pytest.mark.parametrize("kind", KINDS)
async def test_a_cursor_of_another_store_is_refused(
    database: Database, odd_sessions: dict[str, str], tmp_path: Path, kind: str
) -> None:
    page = await database.read(session_list.list_page, SessionFilters(), limit=2)
    unknown = await open_place(new_place(kind, tmp_path / "elsewhere"))

    with pytest.raises(Invalid, match="another store"):
        await unknown.read(session_list.list_page, SessionFilters(), limit=2, cursor=page.next)
    await unknown.close()


@pytest.mark.parametrize("cursor", ["x", "garbage", "日本語", "AAAA", "\udcff", " ", "a" * 10_000, "YSBiIGM", "0" * 7])
async def test_a_malformed_cursor_is_refused(database: Database, odd_sessions: dict[str, str], cursor: str) -> None:
    with pytest.raises(Invalid, match="cursor"):
        await database.read(session_list.list_page, SessionFilters(), limit=2, cursor=cursor)


@pytest.mark.parametrize("at", ["9" * 40, "-1", "0x10", "", "9" * 5_000, "1e9"])
async def test_a_cursor_with_a_changed_time_is_refused(
    database: Database, odd_sessions: dict[str, str], at: str
) -> None:
    page = await database.read(session_list.list_page, SessionFilters(), limit=2)
    mark, _, session_id = base64.urlsafe_b64decode(page.next + "==").decode().split(" ")
    forged = base64.urlsafe_b64encode(f"{mark} {at} {session_id}".encode()).decode()

    with pytest.raises(Invalid, match="cursor"):
        await database.read(session_list.list_page, SessionFilters(), limit=2, cursor=forged)


async def test_reading_lists_changes_nothing(database: Database, odd_sessions: dict[str, str]) -> None:
    before = await all_pages(database)
    for _ in range(20):
        await all_pages(database, SessionFilters())
        await all_pages(database, SessionFilters(trashed=1))

    assert await all_pages(database) == before


async def test_active_sessions_are_found_among_all_others(
    database: Database, odd_sessions: dict[str, str], new_session: NewSession, worker: str
) -> None:
    owned = await new_session()
    await database.write(ownership.attach, owned.id, worker)

    found = await database.read(session_list.list_in_use, 10)

    names = {session_id: name for name, session_id in odd_sessions.items()} | {owned.id: "owned"}
    assert {names[session.id] for session in found} == {"running", "interrupted", "quarantined", "owned"}
    assert [session.id for session in found] == sorted((s.id for s in found), reverse=True), "the newest come first"
    assert len(await database.read(session_list.list_in_use, 2)) == 2


async def test_questions_of_all_sessions_are_listed_oldest_first(database: Database, new_session: NewSession) -> None:
    made = [await new_session() for _ in range(3)]
    for number, session in enumerate(made):
        await database.write(approvals.ask, session.id, "turn-1", "call-1", "May I?", at=10 - number)
    await database.write(approvals.answer, made[1].id, "turn-1", "call-1", answer=Answer(allowed=True), by="me", at=20)

    found = await database.read(approvals.list_all_unanswered, 10)

    assert [one.session_id for one in found] == [made[2].id, made[0].id]
    assert len(await database.read(approvals.list_all_unanswered, 1)) == 1


@pytest.mark.parametrize(
    "filters",
    [
        EVERYTHING,
        SessionFilters(),
        SessionFilters(state="quarantined"),
        SessionFilters(pinned=1),
        SessionFilters(trashed=1),
        SessionFilters(source="api"),
        SessionFilters(model="nobody:nothing"),
        SessionFilters(sides=1, state="waiting"),
    ],
)
async def test_a_list_of_rare_sessions_is_the_same_list(
    database: Database, odd_sessions: dict[str, str], filters: SessionFilters
) -> None:
    usual = (await database.read(session_list.list_page, filters, limit=100, rare=False)).sessions
    found: list[Session] = []
    cursor: str | None = None
    while cursor is not None or not found:
        page = await database.read(session_list.list_page, filters, limit=3, cursor=cursor, rare=True)
        found += page.sessions
        cursor = page.next
        if cursor is None:
            break

    assert [one.id for one in found] == [one.id for one in usual]
    assert [one.id for one in await all_pages(database, filters, limit=3)] == [one.id for one in usual]
    every = (await database.read(session_list.list_page, EVERYTHING, limit=100, rare=False)).sessions
    assert {one.id for one in every if session_list.matches_filters(one, filters)} == {one.id for one in usual}
