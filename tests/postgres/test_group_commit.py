"""Writes of several sessions share a transaction, and none of them notices the others."""

import asyncio
from collections.abc import Callable, Iterator
from functools import partial

import psycopg
import pytest

from holdfast.model.errors import LeaseLost
from holdfast.model.event import SessionOpened
from holdfast.store.database import Transaction
from holdfast.store.postgres.connection import BUSY_SECONDS, connect
from holdfast.store.postgres.driver import PostgresDatabase
from holdfast.store.postgres.group_commit import FirstStatement, MustRunAlone, find_first_statement, run_group
from holdfast.store.postgres.retrying_connection import RetryingConnection
from holdfast.store.postgres.transaction import lock_key
from holdfast.store.postgres.write_job import PostgresWriteJob
from holdfast.store.repos import leases, log, meta, sessions
from holdfast.store.repos.leases import Lease
from holdfast.tasks import PromptFuture
from tests.conftest import NewWorker
from tests.contract.logs import user
from tests.postgres.cluster import cluster, name_of
from tests.postgres.test_pipe import Counter

SESSIONS = [f"hf-{number}" for number in range(8)]
Work = Callable[[Transaction], object]


@pytest.fixture
async def held(database: PostgresDatabase, new_worker: NewWorker) -> list[Lease]:
    worker = await new_worker()
    for name in SESSIONS:
        await database.write(sessions.create, name, SessionOpened(source="run"), at=1)
    return [await database.write(leases.take, name, worker) for name in SESSIONS]


@pytest.fixture
def line(url: str) -> Iterator[RetryingConnection]:
    made = RetryingConnection(url, BUSY_SECONDS)
    yield made
    made.end()


def append(lease: Lease, text: str) -> Work:
    return lambda tx: log.append(tx, lease, [user(text)], at=2)


def group_of(*works: Work) -> list[tuple[PostgresWriteJob, FirstStatement]]:
    loop = asyncio.get_running_loop()
    group = []
    for ticket, work in enumerate(works):
        first = find_first_statement(work)
        assert first is not None
        assert first.can_be_grouped
        group.append((PostgresWriteJob(work, work, ticket, PromptFuture(loop)), first))
    return group


async def said(database: PostgresDatabase, name: str) -> list[str]:
    session = await database.read(sessions.get, name)
    entries = await database.read(log.read_complete, session)
    return [entry.event.parts[0].text for entry in entries if hasattr(entry.event, "parts")]


async def test_a_group_takes_two_trips_to_the_server(database: PostgresDatabase, held: list[Lease], url: str) -> None:
    counter = Counter(f"{cluster().folder}/.s.PGSQL.5432")
    line = RetryingConnection(f"postgresql://{cluster().user}@127.0.0.1:{counter.port}/{name_of(url)}", BUSY_SECONDS)
    for number in range(3):
        group = group_of(*(append(lease, str(number)) for lease in held))
        before = counter.trips
        line.write_together(partial(run_group, group=group))
    assert counter.trips - before == 2
    line.close()
    counter.close()

    for name in SESSIONS:
        assert await said(database, name) == ["0", "1", "2"]


async def test_a_lost_lease_is_reported_to_its_writer_only(
    database: PostgresDatabase, held: list[Lease], line: RetryingConnection
) -> None:
    await database.write(leases.release, held[1])
    group = group_of(append(held[0], "a"), append(held[1], "b"), append(held[2], "c"))

    line.write_together(partial(run_group, group=group))

    assert [type(job.error) for job, _ in group] == [type(None), LeaseLost, type(None)]
    assert [await said(database, name) for name in SESSIONS[:3]] == [["a"], [], ["c"]]


async def test_nothing_stays_of_a_group_in_which_one_raises_after_it_wrote(
    database: PostgresDatabase, held: list[Lease], line: RetryingConnection
) -> None:
    def changes_its_mind(tx: Transaction) -> None:
        log.append(tx, held[1], [user("b")], at=2)
        raise ValueError("no")

    with pytest.raises(MustRunAlone):
        line.write_together(partial(run_group, group=group_of(append(held[0], "a"), changes_its_mind)))

    assert [await said(database, name) for name in SESSIONS[:2]] == [[], []]


async def test_a_write_that_concerns_something_else_too_runs_alone(
    database: PostgresDatabase, held: list[Lease], line: RetryingConnection
) -> None:
    def of_two_sessions(tx: Transaction) -> None:
        sessions.get(tx, SESSIONS[0])
        sessions.get(tx, SESSIONS[1])

    group = group_of(of_two_sessions, append(held[2], "c"))

    line.write_together(partial(run_group, group=group))

    assert [(job.runs_alone, job.is_solitary) for job, _ in group] == [(True, True), (False, False)]
    assert await said(database, SESSIONS[2]) == ["c"]


async def test_a_session_that_another_transaction_has_locked_delays_nobody_else(
    database: PostgresDatabase, held: list[Lease], url: str
) -> None:
    """The first rounds open the connections of the threads; from then on the writes share transactions."""
    with connect(url) as other:
        for number in range(5):
            await asyncio.gather(*(database.write(append(lease, str(number))) for lease in held))
        with other.transaction():
            other.execute("SELECT pg_advisory_xact_lock(%s::INTEGER, %s::INTEGER)", lock_key(SESSIONS[0]))
            late = asyncio.create_task(database.write(append(held[0], "late")))
            await asyncio.gather(*(database.write(append(lease, "in time")) for lease in held[1:]))
            assert not late.done()
        await late

    assert [(await said(database, name))[-1] for name in SESSIONS[:2]] == ["late", "in time"]


async def test_writes_at_once_share_transactions(database: PostgresDatabase, held: list[Lease], url: str) -> None:
    def transactions() -> int:
        [(count,)] = cluster().execute("SELECT count(DISTINCT xmin::TEXT) FROM event", name_of(url))
        return int(str(count))

    rounds, before = 20, transactions()
    for number in range(rounds):
        await asyncio.gather(*(database.write(append(lease, str(number))) for lease in held))

    assert transactions() - before < rounds * len(held) / 2
    for name in SESSIONS:
        assert await said(database, name) == [str(number) for number in range(rounds)]


async def test_writes_that_fail_among_others_are_answered_as_if_alone(
    database: PostgresDatabase, held: list[Lease]
) -> None:
    def of_a_name_that_is_no_text(tx: Transaction) -> None:
        sessions.get(tx, "\ud800")

    def breaks_a_constraint(tx: Transaction) -> None:
        session = sessions.get(tx, SESSIONS[1])
        tx.run("log.add", session=session.id, seq=1, kind="k", at=1, hash="h", body="{}")

    bad: list[Work] = [of_a_name_that_is_no_text, breaks_a_constraint]
    for number in range(5):
        works = [append(held[0], str(number)), *bad, *(append(lease, str(number)) for lease in held[2:])]
        answers = await asyncio.gather(*map(database.write, works), return_exceptions=True)
        assert [type(answer).__name__ for answer in answers[:3]] == ["Session", "Invalid", "AssertionError"]

    assert await said(database, SESSIONS[7]) == ["0", "1", "2", "3", "4"]


async def test_what_is_remembered_of_solitary_functions_does_not_grow_with_their_calls(
    database: PostgresDatabase, held: list[Lease]
) -> None:
    def of_two_sessions(number: int) -> Work:
        def work(tx: Transaction) -> None:
            sessions.get(tx, SESSIONS[number])
            sessions.get(tx, SESSIONS[number - 1])

        return work

    for _ in range(10):
        await asyncio.gather(*(database.write(of_two_sessions(number)) for number in range(len(held))))

    assert len(database._writers._solitary) <= 1


async def test_the_first_statement_is_found_without_running_any() -> None:
    assert find_first_statement(lambda tx: None) is None
    assert find_first_statement(lambda tx: meta.put(tx, "a", "1")).can_be_grouped is False  # type: ignore[union-attr]

    def fails(tx: Transaction) -> None:
        raise psycopg.DataError

    assert find_first_statement(fails) is None
