"""A server that accepts connections and never answers them: writes that have a connection continue."""

import asyncio
import socket
import threading
from collections.abc import Iterator

import psycopg
import pytest
from psycopg.conninfo import conninfo_to_dict

from holdfast.model.errors import Unavailable
from holdfast.store.database import Transaction
from holdfast.store.postgres import connection
from holdfast.store.postgres.connection import connect
from holdfast.store.postgres.driver import PostgresDatabase, open_postgres
from holdfast.store.postgres.write_order import WriteOrder
from holdfast.store.repos import meta
from tests.fleet.faulty_proxy import FaultyProxy
from tests.postgres.cluster import cluster

LONG = 3_600.0
"""Longer than any test: a longer wait means a hang."""
TIMEOUT = 50.0


@pytest.fixture
def proxy() -> Iterator[FaultyProxy]:
    made = FaultyProxy(str(cluster().folder / ".s.PGSQL.5432"))
    yield made
    made.close()


@pytest.fixture(autouse=True)
def _short_limit(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection, "CONNECT_SECONDS", 2)


def through(proxy: FaultyProxy, url: str) -> str:
    """The URL of the database through the proxy."""
    name = conninfo_to_dict(url)["dbname"]
    return f"postgresql://{cluster().user}@127.0.0.1:{proxy.port}/{name}?sslmode=disable&gssencmode=disable"


async def occupy(database: PostgresDatabase) -> tuple[asyncio.Task[None], threading.Event]:
    """A write that keeps its connection until the event is set."""
    begun, done = threading.Event(), threading.Event()

    def work(tx: Transaction) -> None:
        meta.put(tx, "first", "1")
        begun.set()
        assert done.wait(TIMEOUT)

    task = asyncio.create_task(database.write(work))
    assert await asyncio.to_thread(begun.wait, TIMEOUT)
    return task, done


async def test_writes_do_not_wait_for_one_that_gets_no_connection(proxy: FaultyProxy, url: str) -> None:
    database = await open_postgres(through(proxy, url), busy_seconds=LONG)
    first, done = await occupy(database)
    proxy.leave_new_unanswered()
    stuck = asyncio.create_task(database.write(meta.put, "stuck", "2"))
    await asyncio.sleep(0)
    done.set()
    await first

    await asyncio.wait_for(asyncio.gather(*(database.write(meta.put, f"later-{n}", "3") for n in range(3))), TIMEOUT)
    await asyncio.wait_for(stuck, TIMEOUT)

    assert await database.read(meta.get, "stuck") == "2"
    proxy.close()
    await database.close()


@pytest.mark.parametrize("asked", [0, 3_600])
def test_a_url_cannot_make_a_connect_wait_forever(asked: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        address = f"postgresql://me@127.0.0.1:{silent.getsockname()[1]}/db?connect_timeout={asked}&sslmode=disable"
        with pytest.raises(psycopg.OperationalError):
            connect(address)


def test_a_server_that_stops_responding_during_connection_setup_times_out(proxy: FaultyProxy, url: str) -> None:
    def fall_silent(data: bytes) -> None:
        if b"lock_timeout" in data:
            proxy.hold_up()

    proxy.on_data = fall_silent
    with pytest.raises(psycopg.OperationalError):
        connect(through(proxy, url))


def test_a_write_that_names_no_key_in_time_loses_its_position_and_writes_nothing() -> None:
    order = WriteOrder(limit_seconds=0.05)
    stuck, later = order.issue_ticket(), order.issue_ticket()

    order.enter(later, "hf-1")
    order.leave(later)

    with pytest.raises(Unavailable):
        order.enter(stuck, "hf-1")
    order.leave(stuck)
