"""Statements go out together, are answered together, and leave the connection fit for the next whatever happened."""

import socket
import threading
from collections.abc import Iterator

import psycopg
import pytest

from holdfast.model.event import SessionOpened
from holdfast.store import log, meta, sessions
from holdfast.store.postgres import PostgresDatabase
from holdfast.store.postgres_connection import BUSY_SECONDS, connect
from holdfast.store.postgres_line import Line
from holdfast.store.postgres_pipe import Pipe
from tests.contract.logs import user
from tests.postgres.cluster import cluster, name_of

PATIENCE = 60.0
LONG = 8_000_000
"""More than any buffer on the way holds."""


@pytest.fixture
def pipe(database: PostgresDatabase, url: str) -> Iterator[Pipe]:
    link = connect(url)
    yield Pipe(link)
    link.close()


def put(pipe: Pipe, key: str, value: str) -> None:
    pipe.tell("meta.put", {"key": key, "value": value})


def test_what_was_told_is_there_when_it_is_asked_for_and_stays_after_the_end(pipe: Pipe) -> None:
    pipe.begin("driver.begin")
    put(pipe, "a", "1")
    put(pipe, "a", "2")
    assert pipe.ask("meta.get", {"key": "a"}) == [("2",)]
    assert pipe.count("meta.put", {"key": "b", "value": "x"}) == 1
    pipe.end("driver.commit")

    pipe.begin("driver.begin_read")
    assert pipe.ask("meta.get", {"key": "b"}) == [("x",)]
    assert pipe.ask("meta.get", {"key": "none"}) == []
    pipe.leave("driver.commit")
    pipe.begin("driver.begin_read")
    assert pipe.ask("meta.get", {"key": "a"}) == [("2",)]
    pipe.leave("driver.commit")
    pipe.rest()
    assert pipe.link.execute("SELECT 1").fetchone() == (1,), "others can use the connection again"


@pytest.mark.parametrize("asked", [True, False], ids=["at the next question", "at the end"])
def test_a_statement_that_fails_is_told_of_and_nothing_of_the_transaction_stays(pipe: Pipe, *, asked: bool) -> None:
    pipe.begin("driver.begin")
    put(pipe, "a", "1")
    pipe.tell("log.add", {"session": "nobody", "seq": 1, "kind": "k", "at": 1, "hash": "h", "body": "{}"})
    put(pipe, "b", "2")
    with pytest.raises(psycopg.errors.ForeignKeyViolation):
        if asked:
            pipe.ask("meta.get", {"key": "a"})
        else:
            pipe.end("driver.commit")
    pipe.abandon()

    pipe.begin("driver.begin")
    assert pipe.ask("meta.get", {"key": "a"}) == []
    put(pipe, "b", "3")  # was being prepared when the other failed, or not any more
    assert pipe.ask("meta.get", {"key": "b"}) == [("3",)]
    pipe.end("driver.commit")


def test_a_read_that_writes_is_told_so_at_its_end(pipe: Pipe) -> None:
    pipe.begin("driver.begin_read")
    pipe.ask("meta.get", {"key": "a"})
    put(pipe, "a", "1")
    with pytest.raises(psycopg.errors.ReadOnlySqlTransaction):
        pipe.leave("driver.commit")
    pipe.abandon()


def test_words_longer_than_every_buffer_go_through_in_both_directions(pipe: Pipe) -> None:
    pipe.begin("driver.begin")
    for key in "abc":
        put(pipe, key, key * LONG)
    assert [pipe.ask("meta.get", {"key": key}) == [(key * LONG,)] for key in "abc"] == [True] * 3
    pipe.end("driver.commit")


def test_text_that_cannot_be_kept_is_refused_before_it_is_cut_short(pipe: Pipe) -> None:
    pipe.begin("driver.begin")
    with pytest.raises(psycopg.DataError, match="NUL"):
        put(pipe, "a", "before\0behind")
    with pytest.raises(UnicodeEncodeError):
        put(pipe, "a", "\ud800")
    pipe.abandon()


def test_lists_reach_the_server_as_they_are(pipe: Pipe, url: str) -> None:
    odd = ['a "quote"', "back\\slash", "{brace},", "NULL", "夜鶯", " "]
    with connect(url) as ear:
        ear.execute("LISTEN holdfast")
        pipe.begin("driver.begin")
        assert pipe.ask_once("driver.notify", {"topics": odd}) == [(len(odd),)]
        pipe.end("driver.commit")

        assert [notice.payload for notice in ear.notifies(timeout=PATIENCE, stop_after=len(odd))] == odd


class Counter:
    """A way to the server that counts how often the client has spoken after it was spoken to."""

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


async def test_an_append_takes_two_trips_to_the_server(database: PostgresDatabase, url: str) -> None:
    await database.write(sessions.create, "hf-1", SessionOpened(source="run"), at=1)
    counter = Counter(f"{cluster().folder}/.s.PGSQL.5432")
    line = Line(f"postgresql://{cluster().user}@127.0.0.1:{counter.port}/{name_of(url)}", BUSY_SECONDS)
    for _ in range(3):
        before = counter.trips
        line.write(lambda tx: log.append_unheld(tx, "hf-1", [user("a"), user("b")], at=1))
    assert counter.trips - before == 2
    line.close()
    counter.close()


async def test_a_write_that_asks_nothing_shows_its_mark_before_it_is_committed(
    database: PostgresDatabase, url: str
) -> None:
    """In one packet with its commit it could arrive after we were told that it never did, and undo a later write."""
    counter = Counter(f"{cluster().folder}/.s.PGSQL.5432")
    line = Line(f"postgresql://{cluster().user}@127.0.0.1:{counter.port}/{name_of(url)}", BUSY_SECONDS)
    for _ in range(3):
        before = counter.trips
        line.write(lambda tx: meta.put(tx, "a", "1"))
    assert counter.trips - before == 2
    line.close()
    counter.close()


async def test_what_became_of_a_commit_can_be_asked_on_a_borrowed_connection(
    database: PostgresDatabase, url: str
) -> None:
    name = name_of(url)
    cluster().execute(f"CREATE ROLE lonely_{name} LOGIN CONNECTION LIMIT 1")
    cluster().execute(f"GRANT ALL ON ALL TABLES IN SCHEMA public TO lonely_{name}", name)
    theirs = url.replace(f"//{cluster().user}@", f"//lonely_{name}@")
    lender = Line(theirs, BUSY_SECONDS)
    lender.read(lambda tx: tx.one("driver.clock"))  # whose last answer is not looked at yet
    borrower = Line(theirs, BUSY_SECONDS, lender.lend)
    borrower._number = 1  # as if the line had broken in the first commit, before the server saw any of it

    assert borrower._was_committed(psycopg.OperationalError("the line was lost")) is False
    borrower.write(lambda tx: meta.put(tx, "a", "1"))
    assert borrower.read(lambda tx: meta.get(tx, "a")) == "1"
    borrower.end()
