"""Statements are sent together and answered together, and always leave the connection usable."""

import socket
import threading
from collections.abc import Iterator

import psycopg
import pytest

from holdfast.model.event import SessionOpened
from holdfast.store.postgres.connection import BUSY_SECONDS, connect
from holdfast.store.postgres.driver import PostgresDatabase
from holdfast.store.postgres.pipeline import Pipeline
from holdfast.store.postgres.retrying_connection import RetryingConnection
from holdfast.store.repos import log, meta, sessions
from tests.contract.logs import user
from tests.postgres.cluster import cluster, name_of

TIMEOUT = 60.0
LONG = 8_000_000
"""More than any buffer on the way holds."""


@pytest.fixture
def pipe(database: PostgresDatabase, url: str) -> Iterator[Pipeline]:
    link = connect(url)
    yield Pipeline(link)
    link.close()


def put(pipe: Pipeline, key: str, value: str) -> None:
    pipe.send("meta.put", {"key": key, "value": value})


def test_statements_take_effect_when_a_result_is_needed_and_stay_after_the_end(pipe: Pipeline) -> None:
    pipe.begin("driver.begin")
    put(pipe, "a", "1")
    put(pipe, "a", "2")
    assert pipe.fetch("meta.get", {"key": "a"}) == [("2",)]
    assert pipe.count("meta.put", {"key": "b", "value": "x"}) == 1
    pipe.end("driver.commit")

    pipe.begin("driver.begin_read")
    assert pipe.fetch("meta.get", {"key": "b"}) == [("x",)]
    assert pipe.fetch("meta.get", {"key": "none"}) == []
    pipe.end_without_waiting("driver.commit")
    pipe.begin("driver.begin_read")
    assert pipe.fetch("meta.get", {"key": "a"}) == [("2",)]
    pipe.end_without_waiting("driver.commit")
    pipe.collect_pending()
    assert pipe.link.execute("SELECT 1").fetchone() == (1,), "others can use the connection again"


@pytest.mark.parametrize("asked", [True, False], ids=["at the next question", "at the end"])
def test_a_failed_statement_is_reported_and_its_transaction_is_rolled_back(pipe: Pipeline, *, asked: bool) -> None:
    pipe.begin("driver.begin")
    put(pipe, "a", "1")
    pipe.send("log.add", {"session": "nobody", "seq": 1, "kind": "k", "at": 1, "hash": "h", "body": "{}"})
    put(pipe, "b", "2")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        if asked:
            pipe.fetch("meta.get", {"key": "a"})
        else:
            pipe.end("driver.commit")
    pipe.roll_back()

    pipe.begin("driver.begin")
    assert pipe.fetch("meta.get", {"key": "a"}) == []
    put(pipe, "b", "3")  # was being prepared when the other failed, or not any more
    assert pipe.fetch("meta.get", {"key": "b"}) == [("3",)]
    pipe.end("driver.commit")


def test_a_read_that_writes_fails_at_its_end(pipe: Pipeline) -> None:
    pipe.begin("driver.begin_read")
    pipe.fetch("meta.get", {"key": "a"})
    put(pipe, "a", "1")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        pipe.end_without_waiting("driver.commit")
    pipe.roll_back()


def test_text_longer_than_every_buffer_passes_in_both_directions(pipe: Pipeline) -> None:
    pipe.begin("driver.begin")
    for key in "abc":
        put(pipe, key, key * LONG)
    assert [pipe.fetch("meta.get", {"key": key}) == [(key * LONG,)] for key in "abc"] == [True] * 3
    pipe.end("driver.commit")


def test_text_that_cannot_be_stored_is_refused_and_not_truncated(pipe: Pipeline) -> None:
    pipe.begin("driver.begin")
    with pytest.raises(psycopg.DataError, match="NUL"):
        put(pipe, "a", "before\0behind")
    with pytest.raises(UnicodeEncodeError):
        put(pipe, "a", "\ud800")
    pipe.roll_back()


def test_lists_reach_the_server_unchanged(pipe: Pipeline, url: str) -> None:
    odd = ['a "quote"', "back\\slash", "{brace},", "NULL", "夜鶯", " "]
    with connect(url) as ear:
        ear.execute("LISTEN holdfast")
        pipe.begin("driver.begin")
        assert pipe.fetch_unprepared("driver.notify", {"topics": odd}) == [(len(odd),)]
        pipe.end("driver.commit")

        assert [notice.payload for notice in ear.notifies(timeout=TIMEOUT, stop_after=len(odd))] == odd


class Counter:
    """A proxy that counts the round trips."""

    def __init__(self, target: str) -> None:
        self._target = target
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self.trips = 0
        self._answered = True
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            for one, other, up in ((client, server, True), (server, client, False)):
                threading.Thread(target=self._pass_on, args=(one, other, up), daemon=True).start()

    def _pass_on(self, one: socket.socket, other: socket.socket, up: bool) -> None:
        try:
            while data := one.recv(65_536):
                self.trips += up and self._answered
                self._answered = not up
                other.sendall(data)
            other.shutdown(socket.SHUT_WR)
        except OSError:
            return

    def close(self) -> None:
        self._listener.close()


async def test_an_append_takes_two_round_trips(database: PostgresDatabase, url: str) -> None:
    await database.write(sessions.create, "hf-1", SessionOpened(source="run"), at=1)
    counter = Counter(f"{cluster().folder}/.s.PGSQL.5432")
    line = RetryingConnection(f"postgresql://{cluster().user}@127.0.0.1:{counter.port}/{name_of(url)}", BUSY_SECONDS)
    for _ in range(3):
        before = counter.trips
        line.write(lambda tx: log.append_unheld(tx, "hf-1", [user("a"), user("b")], at=1))
    assert counter.trips - before == 2
    line.close()
    counter.close()


async def test_a_write_without_queries_writes_its_mark_before_the_commit(database: PostgresDatabase, url: str) -> None:
    """In one packet with its commit it could arrive after we concluded that it did not, and undo a later write."""
    counter = Counter(f"{cluster().folder}/.s.PGSQL.5432")
    line = RetryingConnection(f"postgresql://{cluster().user}@127.0.0.1:{counter.port}/{name_of(url)}", BUSY_SECONDS)
    for _ in range(3):
        before = counter.trips
        line.write(lambda tx: meta.put(tx, "a", "1"))
    assert counter.trips - before == 2
    line.close()
    counter.close()


async def test_the_outcome_of_a_commit_can_be_read_on_a_borrowed_connection(
    database: PostgresDatabase, url: str
) -> None:
    name = name_of(url)
    cluster().execute(f"CREATE ROLE lonely_{name} LOGIN CONNECTION LIMIT 1")
    cluster().execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO lonely_{name}", name)
    theirs = url.replace(f"//{cluster().user}@", f"//lonely_{name}@")
    lender = RetryingConnection(theirs, BUSY_SECONDS)
    lender.read(lambda tx: tx.one("driver.get_time"))  # whose last result is not read yet
    borrower = RetryingConnection(theirs, BUSY_SECONDS, lender.lend)
    borrower._number = 1  # as if the connection had broken during the first commit, before the server got any of it

    assert borrower._was_committed(psycopg.OperationalError("the line was lost")) is False
    borrower.write(lambda tx: meta.put(tx, "a", "1"))
    assert borrower.read(lambda tx: meta.get(tx, "a")) == "1"
    borrower.end()
