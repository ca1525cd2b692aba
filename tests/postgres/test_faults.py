"""PostgreSQL restarted, killed or cut off at the worst moment: nothing acknowledged is lost, nothing is doubled."""

import asyncio
import os
import signal
import socket
import threading
from collections.abc import AsyncIterator
from contextlib import suppress

import psycopg
import pytest

from holdfast.model.errors import DiskFull, HoldfastError, Invalid, IoFailed, ReadOnly, Unavailable
from holdfast.model.event import SessionOpened
from holdfast.store.database import Transaction
from holdfast.store.postgres.connection import translate
from holdfast.store.postgres.driver import PostgresDatabase, open_postgres
from holdfast.store.repos import aliases, log, meta, sessions
from tests.contract.logs import user
from tests.contract.test_database import Ear
from tests.crash.programs import wait_until
from tests.fleet.faulty_proxy import FaultyProxy
from tests.postgres.cluster import Cluster, cluster, name_of

TIMEOUT = 60.0
HANG_UP = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE datname = current_database() AND pid <> pg_backend_pid()"
BUSY = "SELECT pid FROM pg_stat_activity WHERE datname LIKE 'db%' AND state <> 'idle'"


@pytest.fixture
async def killable(durable: Cluster) -> AsyncIterator[PostgresDatabase]:
    opened = await open_postgres(durable.new_database())
    yield opened
    await opened.close()


async def open_session(database: PostgresDatabase, name: str) -> None:
    await database.write(sessions.create, name, SessionOpened(source="run"), at=1)


async def said(database: PostgresDatabase, name: str) -> list[str]:
    """The messages of a session, verified."""
    session = await database.read(sessions.get, name)
    entries = await database.read(log.read_complete, session)
    return [entry.event.parts[0].text for entry in entries if hasattr(entry.event, "parts")]


# broken connections


async def test_broken_connections_are_reopened(database: PostgresDatabase, url: str) -> None:
    await open_session(database, "hf-1")
    for number in range(5):
        cluster().execute(HANG_UP, name_of(url))
        await database.write(log.append_unheld, "hf-1", [user(str(number))], at=1)
        assert len(await said(database, "hf-1")) == number + 1


async def test_work_whose_connection_breaks_is_repeated_and_counts_once(database: PostgresDatabase, url: str) -> None:
    runs = []

    def work(tx: Transaction) -> None:
        log.append_unheld(tx, "hf-1", [user("once")], at=1)
        tx.one("sessions.get", id="hf-1")
        runs.append(1)
        if len(runs) == 1:
            cluster().execute(HANG_UP, name_of(url))

    await open_session(database, "hf-1")
    await database.write(work)

    assert len(runs) == 2
    assert await said(database, "hf-1") == ["once"]


class Cutter:
    """A proxy that loses the response to a commit: before the server gets it, or after it was done."""

    def __init__(self, target: str, *, deliver: bool) -> None:
        self._target = target
        self._deliver = deliver
        self.armed = False
        self.cuts = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = self._listener.getsockname()[1]
        self._thread = threading.Thread(target=self._serve, daemon=True)
        self._thread.start()

    def refuse(self) -> None:
        """Refuse every connection."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def close(self) -> None:
        self.refuse()
        self._thread.join()

    def _serve(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.socket(socket.AF_UNIX)
            server.connect(self._target)
            down = threading.Thread(target=self._down, args=(server, client), daemon=True)
            threading.Thread(target=self._up, args=(client, server, down), daemon=True).start()
            down.start()

    def _up(self, client: socket.socket, server: socket.socket, down: threading.Thread) -> None:
        """From the client to the server; breaks at a commit."""
        while data := _receive(client):
            if self.armed and self._is_commit(data):
                self.armed = False
                self.cuts += 1
                client.shutdown(socket.SHUT_RDWR)
                if self._deliver:
                    server.sendall(data)
                    _wait_for_answer(server)
                break
            server.sendall(data)
        with suppress(OSError):
            server.shutdown(socket.SHUT_RDWR)
        down.join()
        client.close()
        server.close()

    @staticmethod
    def _is_commit(data: bytes) -> bool:
        return b"COMMIT" in data

    def _down(self, server: socket.socket, client: socket.socket) -> None:
        while data := _receive(server):
            with suppress(OSError):
                client.sendall(data)


def _receive(one: socket.socket) -> bytes:
    try:
        return one.recv(65_536)
    except OSError:
        return b""


def _wait_for_answer(server: socket.socket) -> None:
    """The other thread reads the response; a commit is done when the server is idle on this connection."""
    server.shutdown(socket.SHUT_WR)


@pytest.mark.parametrize("deliver", [False, True], ids=["the commit never arrives", "its answer never arrives"])
async def test_a_connection_that_breaks_during_a_commit_neither_loses_nor_doubles(
    database: PostgresDatabase, url: str, *, deliver: bool
) -> None:
    await open_session(database, "hf-1")
    cutter = Cutter(f"{cluster().folder}/.s.PGSQL.5432", deliver=deliver)
    runs = []

    def work(tx: Transaction, text: str) -> str:
        runs.append(text)
        log.append_unheld(tx, "hf-1", [user(text)], at=1)
        cutter.armed = text == "at the wrong moment" and len(runs) == 2
        return text

    through = await open_postgres(f"postgresql://{cluster().user}@127.0.0.1:{cutter.port}/{name_of(url)}")
    assert await through.write(work, "before") == "before"
    assert await through.write(work, "at the wrong moment") == "at the wrong moment"
    assert await through.write(work, "after") == "after"

    assert cutter.cuts == 1
    assert await said(database, "hf-1") == ["before", "at the wrong moment", "after"]
    assert runs.count("at the wrong moment") == (1 if deliver else 2)
    await through.close()
    cutter.close()


async def test_an_outcome_that_cannot_be_determined_is_reported_as_unknown(
    url: str, database: PostgresDatabase
) -> None:
    cutter = Cutter(f"{cluster().folder}/.s.PGSQL.5432", deliver=True)

    def work(tx: Transaction) -> None:
        meta.put(tx, "key", "there")
        tx.one("meta.get", key="key")
        cutter.armed = True
        cutter.refuse()

    address = f"postgresql://{cluster().user}@127.0.0.1:{cutter.port}/{name_of(url)}"
    through = await open_postgres(address, busy_seconds=0.5)
    with pytest.raises(IoFailed, match="unknown whether"):
        await through.write(work)
    await through.close()
    cutter.close()


async def test_listeners_are_notified_again_after_the_connection_broke(database: PostgresDatabase, url: str) -> None:
    other = await open_postgres(url)

    def tell(tx: Transaction, key: str) -> None:
        meta.put(tx, key, "told")
        tx.notify("topic")

    async with Ear(database, "topic") as ear:
        await other.write(tell, "before")
        await ear.more_than(0)
        cluster().execute(HANG_UP, name_of(url))
        await other.write(tell, "after")
        heard = ear.count
        await ear.more_than(heard)
    await other.close()


async def test_a_store_that_stays_unreachable_is_unavailable(url: str) -> None:
    cutter = Cutter(f"{cluster().folder}/.s.PGSQL.5432", deliver=True)
    through = await open_postgres(
        f"postgresql://{cluster().user}@127.0.0.1:{cutter.port}/{name_of(url)}", busy_seconds=0.3
    )
    cutter.close()

    with pytest.raises(Unavailable, match="cannot reach"):
        await through.write(meta.put, "key", "value")
    with pytest.raises(Unavailable, match="cannot reach"):
        await through.read(meta.get, "key")
    await through.close()


async def test_a_transaction_of_a_silent_worker_counts_as_idle_so_that_the_server_ends_it(
    database: PostgresDatabase, url: str
) -> None:
    await open_session(database, "hf-1")
    started, gate = threading.Event(), threading.Event()

    def stop_in_the_midst(tx: Transaction) -> None:
        tx.one("sessions.get", id="hf-1")
        started.set()
        assert gate.wait(TIMEOUT)

    holder = asyncio.create_task(database.write(stop_in_the_midst))
    assert await asyncio.to_thread(started.wait, TIMEOUT)

    def is_idle() -> bool:
        """Only then idle_in_transaction_session_timeout applies. The response may arrive before the server reports it."""
        states = cluster().execute(
            "SELECT state FROM pg_stat_activity WHERE datname = current_database() AND xact_start IS NOT NULL "
            "AND pid <> pg_backend_pid() AND backend_type = 'client backend'",
            name_of(url),
        )
        return states == [("idle in transaction",)]

    await asyncio.to_thread(wait_until, is_idle, "the transaction to count as idle", TIMEOUT / 2)
    gate.set()
    await holder


@pytest.mark.crash
@pytest.mark.timeout(180)
async def test_a_hanging_server_is_abandoned_for_its_replacement(database: PostgresDatabase, url: str) -> None:
    """Its connection stays open without data: only a new connection shows it."""
    await open_session(database, "hf-1")
    place = f"{cluster().folder}/.s.PGSQL.5432"
    hangs, other = FaultyProxy(place), FaultyProxy(place)
    ways = f"host=127.0.0.1,127.0.0.1&port={hangs.port},{other.port}&connect_timeout=2"
    through = await open_postgres(f"postgresql://{cluster().user}@/{name_of(url)}?{ways}")
    await through.write(log.append_unheld, "hf-1", [user("before")], at=1)

    hangs.hold_up()
    await through.write(log.append_unheld, "hf-1", [user("while it hangs")], at=2)
    hangs.let_through()  # the delayed data arrives now
    await through.write(log.append_unheld, "hf-1", [user("after")], at=3)

    assert await said(database, "hf-1") == ["before", "while it hangs", "after"]
    await through.close()
    hangs.close()
    other.close()


# servers that die


@pytest.mark.crash
@pytest.mark.parametrize("victim", ["postmaster and all", "one backend"])
async def test_a_server_killed_under_load_loses_and_doubles_nothing(
    killable: PostgresDatabase, durable: Cluster, victim: str
) -> None:
    names = [f"hf-{number}" for number in range(6)]
    acknowledged: dict[str, list[str]] = {name: [] for name in names}
    unknown: dict[str, list[str]] = {name: [] for name in names}
    for name in names:
        await open_session(killable, name)
    enough = asyncio.Event()

    async def append_messages(name: str) -> None:
        number = 0
        while not enough.is_set():
            number += 1
            text = f"{name} {number}"
            try:
                await killable.write(log.append_unheld, name, [user(text)], at=number)
                acknowledged[name].append(text)
            except HoldfastError:
                unknown[name].append(text)

    async def progress(more: int) -> None:
        goal = sum(map(len, acknowledged.values())) + more
        async with asyncio.timeout(TIMEOUT):
            while sum(map(len, acknowledged.values())) < goal:
                await asyncio.sleep(0)

    talkers = [asyncio.create_task(append_messages(name)) for name in names]
    try:
        for _ in range(3):
            await progress(60)
            if victim == "one backend":
                for (pid,) in durable.execute_in_time(BUSY)[:1]:
                    os.kill(int(str(pid)), signal.SIGKILL)
            else:
                durable.kill()
                durable.start()  # from this thread: the server ends with the one that started it
        await progress(30)
    finally:
        enough.set()
        await asyncio.gather(*talkers)

    for name in names:
        kept = await said(killable, name)
        assert len(kept) == len(set(kept)), "nothing twice"
        assert set(acknowledged[name]) <= set(kept), "nothing acknowledged is missing"
        assert set(kept) <= set(acknowledged[name]) | set(unknown[name])


# errors by their names


async def test_a_read_only_role_can_read_and_its_writes_are_refused(url: str, database: PostgresDatabase) -> None:
    await database.write(meta.put, "key", "value")
    cluster().execute("CREATE ROLE reader LOGIN", name_of(url))
    cluster().execute("GRANT SELECT ON ALL TABLES IN SCHEMA public TO reader", name_of(url))
    reader = await open_postgres(url.replace(f"//{cluster().user}@", "//reader@"))

    assert await reader.read(meta.get, "key") == "value"
    with pytest.raises(ReadOnly, match="permission denied"):
        await reader.write(meta.put, "key", "another")
    await reader.close()
    cluster().execute("DROP OWNED BY reader; DROP ROLE reader", name_of(url))


@pytest.mark.parametrize(
    ("code", "ours"),
    [("53100", DiskFull), ("25006", ReadOnly), ("42501", ReadOnly), ("55P03", Unavailable), ("53300", Unavailable)],
)
def test_errors_of_the_server_are_translated(code: str, ours: type[Exception]) -> None:
    error = psycopg.errors.lookup(code)("something went wrong")

    assert type(translate(error, "postgresql://here/db")) is ours


async def test_names_that_are_not_text_are_refused(database: PostgresDatabase) -> None:
    await open_session(database, "hf-1")
    for name in ("lone \ud800 surrogate", "nul \0"):
        with pytest.raises(Invalid):
            await database.write(aliases.add, name, "hf-1", at=1)
    assert await database.read(aliases.list_by_session, "hf-1") == []


async def test_waiting_too_long_for_a_lock_is_an_error(database: PostgresDatabase, url: str) -> None:
    await open_session(database, "hf-1")
    impatient = await open_postgres(url, busy_seconds=1)
    started, gate = threading.Event(), threading.Event()

    def hold(tx: Transaction) -> None:
        tx.one("sessions.get", id="hf-1")
        started.set()
        assert gate.wait(TIMEOUT)

    holder = asyncio.create_task(database.write(hold))
    assert await asyncio.to_thread(started.wait, TIMEOUT)
    with pytest.raises(Unavailable, match="another worker has locked"):
        await impatient.write(log.append_unheld, "hf-1", [user("x")], at=1)
    gate.set()
    await holder
    await impatient.close()
