"""The dashboard's queries over a whole store, on every store."""

from typing import Any

from holdfast.model.event import Ended, Event, ModelSaid, Rewound, TurnEnded, TurnStarted, Usage
from holdfast.store.database import Database
from holdfast.store.repos import dashboard_queries, leases, log, sessions
from holdfast.store.repos.dashboard_queries import SortedQuery
from holdfast.store.repos.session_list import SessionFilters
from holdfast.store.spending import usage
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


async def test_sessions_are_filtered_and_sorted_by_what_a_page_of_the_list_does_not_have(
    database: Database, new_session: NewSession, clock: FakeClock
) -> None:
    made = {}
    for number, title in enumerate(("a", "B", "c")):
        session = await new_session(title=title, workdir=f"/srv/50%_{title}/\U0001f600!", model=f"m{number % 2}")
        outcome = "failed" if number else "done"
        events: list[Event] = [
            TurnStarted(turn_id="t"),
            user("t"),
            *(ModelSaid(turn_id="t", parts=(), usage=Usage(tokens_in=number, cost=number)) for _ in range(number)),
            TurnEnded(turn_id="t", outcome=outcome),  # type: ignore[arg-type] # one of two
            *([Rewound(to_seq=1)] if title == "c" else []),
        ]
        await database.write(log.append_unheld, session.id, events, at=clock.now())
        made[session.id] = title
        clock.pass_seconds(100)
    await usage.catch_up(database)

    async def titles(*, start: int = 0, **query: Any) -> str:
        wanted = SortedQuery(filters=query.pop("filters", SessionFilters()), **query)
        found = await database.read(dashboard_queries.list_sorted, wanted, limit=2, start=start)
        return "".join(made[session.id] for session, _ in found)

    now = clock.now()
    assert (await titles(), await titles(start=2)) == ("cB", "a")
    assert await titles(sort="title") == "aB"
    for order in ("cost", "tokens", "messages", "created"):
        assert await titles(sort=order) == "cB", order
    assert (await titles(failed=True), await titles(failed=False)) == ("B", "ca")
    assert (await titles(min_cost=10**9), await titles(min_cost=5 * 10**9)) == ("cB", "")
    assert (await titles(folder="50%_a/\U0001f600!"), await titles(folder="50_%"), await titles(folder="/SRV")) == (
        "a",
        "",
        "cB",
    )
    assert await titles(since=now - 150_000_000) == "c"
    assert await titles(until=now - 250_000_000) == "a"
    assert await titles(filters=SessionFilters(model="m1")) == "B"
    assert await titles(filters=SessionFilters(state="waiting", pinned=1)) == ""
    listed = [await database.read(sessions.get, session_id) for session_id in made]
    costs = await database.read(dashboard_queries.map_costs, listed * 10)
    assert {made[session_id]: cost for session_id, cost in costs.items() if cost} == {"B": 10**9, "c": 4 * 10**9}
    assert await database.read(dashboard_queries.list_models, limit=5) == ["m0", "m1"]
