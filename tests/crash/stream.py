"""Appends to a few sessions endlessly, several at once, and emits what was acknowledged."""

import argparse
import asyncio
from pathlib import Path

import apsw

from holdfast.clock import SystemClock
from holdfast.model.errors import NotSaved
from holdfast.model.event import SessionOpened, UserSaid
from holdfast.model.ids import SESSION, WORKER, Ids
from holdfast.model.message import Text
from holdfast.store.database import Database
from holdfast.store.repos import leases, log, sessions, workers
from holdfast.store.sqlite import connection as sqlite_connection
from holdfast.store.sqlite import driver, writer
from holdfast.torture.child import emit
from tests.crash.output import head_of
from tests.crash.writer import DATABASE, GIVEN_UP, IDENTITY, VERSION

SESSIONS = 3
"""Sessions that are written concurrently; also the maximum number of appends under way."""


def lower_synchronous(level: str) -> None:
    """Use a weaker `synchronous` setting than the store sets, as a broken driver would."""
    connect = sqlite_connection.connect

    def lowered(path: Path, **settings: float) -> apsw.Connection:
        connection = connect(path, **settings)
        connection.pragma("synchronous", level)
        return connection

    sqlite_connection.connect = lowered


async def fill(database: Database, worker: str, session_id: str) -> None:
    clock = SystemClock()
    created, _ = await database.write(sessions.create, session_id, SessionOpened(source="run"), at=clock.now())
    emit(ack="created", heads=[head_of(created)])
    lease = await database.write(leases.take, session_id, worker)
    n = 0
    while True:
        n += 1
        said = UserSaid(turn_id="turn", parts=(Text(f"{n} " * 100),))
        session = await database.write(log.append, lease, [said], at=clock.now())
        emit(ack="said", heads=[head_of(session)])


async def main(given: argparse.Namespace) -> None:
    writer.CHECKPOINT_PAGES = given.checkpoint_pages
    if given.synchronous:
        lower_synchronous(given.synchronous)
    clock = SystemClock()
    ids = Ids(clock.now)
    database = await driver.open_sqlite(given.home / DATABASE)
    worker = ids.make(WORKER)
    await database.write(workers.register, worker, "test", IDENTITY, version=VERSION, at=clock.now())
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(SESSIONS):
                group.create_task(fill(database, worker, ids.make(SESSION)))
    except* NotSaved as failed:
        emit(failed=[type(e).__name__ for e in failed.exceptions])
        raise SystemExit(GIVEN_UP) from None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("--synchronous", help="a weaker setting than the store's")
    parser.add_argument("--checkpoint-pages", type=int, default=writer.CHECKPOINT_PAGES)
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(arguments()))
