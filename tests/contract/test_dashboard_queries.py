"""The dashboard's queries over a whole store, on every store."""

from holdfast.model.event import Ended, Event, TurnEnded, TurnStarted
from holdfast.store.database import Database
from holdfast.store.repos import dashboard_queries, leases, log
from tests.contract.conftest import NewSession
from tests.contract.logs import user
from tests.fakes.clock import FakeClock


async def test_the_space_page_lists_recent_sessions_and_every_open_turn(
    database: Database, new_session: NewSession, worker: str, clock: FakeClock
) -> None:
    old, stuck = await new_session(), await new_session()
    lease = await database.write(leases.take, stuck.id, worker)
    await database.write(log.append, lease, [TurnStarted(turn_id="t"), user("t")], at=clock.now())
    clock.pass_seconds(100)
    fresh = await new_session(title="fresh")
    since = clock.now() - 50_000_000

    found = await database.read(dashboard_queries.list_recent_sessions, since=since, limit=10)

    assert {one.session.id: one.last_kind for one in found} == {fresh.id: "session_opened", stuck.id: "user_said"}
    assert old.id not in {one.session.id for one in found}
    reaped = await new_session()
    left: list[Event] = [TurnStarted(turn_id="t"), user("t"), Ended(reason="reaped")]
    await database.write(log.append_unheld, reaped.id, left, at=clock.now())
    assert [one.id for one in await database.read(dashboard_queries.list_unfinished, limit=10)] == [stuck.id]


async def test_timeline_events_are_new_starts_and_ends(
    database: Database, new_session: NewSession, clock: FakeClock
) -> None:
    old = await new_session()
    clock.pass_seconds(100)
    since = clock.now()
    fresh = await new_session()
    events = [TurnStarted(turn_id="t"), user("t"), TurnEnded(turn_id="t", outcome="done")]
    await database.write(log.append_unheld, fresh.id, events, at=clock.now())

    found, position = await database.read(dashboard_queries.list_timeline_events, after=0, since=since)

    assert [(one.session_id, one.kind) for one in found] == [
        (fresh.id, "session_opened"),
        (fresh.id, "turn_started"),
        (fresh.id, "turn_ended"),
    ]
    assert [one.body is not None for one in found] == [False, False, True]
    assert position == await database.read(log.get_last_position)
    await database.write(log.append_unheld, old.id, [Ended(reason="user")], at=clock.now())
    more, _ = await database.read(dashboard_queries.list_timeline_events, after=position, since=since)
    assert [(one.session_id, one.kind) for one in more] == [(old.id, "ended")]


async def test_an_empty_store_has_nothing_to_show(database: Database) -> None:
    assert await database.read(log.get_last_position) == 0
    assert await database.read(dashboard_queries.list_timeline_events, after=0, since=0) == ([], 0)
    assert await database.read(dashboard_queries.list_recent_sessions, since=0, limit=10) == []
    assert await database.read(dashboard_queries.count_waiting) == dashboard_queries.QueueDepths(0, 0, 0)


async def test_the_size_of_a_store_without_a_file_can_be_queried(place: str, database: Database) -> None:
    if place.startswith("postgres"):
        size = await database.read(dashboard_queries.get_database_size)
        assert size is not None and size > 100_000
