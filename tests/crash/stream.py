"""A program that appends to a few sessions without end, several at once, and says what was acknowledged."""

import argparse
import asyncio
from pathlib import Path

import apsw

from holdfast.clock import SystemClock
from holdfast.model.errors import NotSaved
from holdfast.model.event import SessionOpened, UserSaid
from holdfast.model.ids import SESSION, WORKER, Ids
from holdfast.model.message import Text
from holdfast.store import leases, log, sessions, sqlite, sqlite_connection, sqlite_writer, workers
from holdfast.store.database import Database
from tests.crash.say import place_of, say
from tests.crash.writer import DATABASE, GIVEN_UP, IDENTITY, VERSION

SESSIONS = 3
"""Sessions written to side by side; so many appends at most are under way at any time."""


def lower(level: str) -> None:
    """Let the store believe in a laxer setting than it asked for: what a broken driver would do."""
    connect = sqlite_connection.connect

    def lowered(path: Path, **settings: float) -> apsw.Connection:
        connection = connect(path, **settings)
        connection.pragma("synchronous", level)
        return connection

    sqlite_connection.connect = lowered


async def fill(database: Database, worker: str, session_id: str) -> None:
    clock = SystemClock()
    created, _ = await database.write(sessions.create, session_id, SessionOpened(source="run"), at=clock.now())
    say(ack="created", places=[place_of(created)])
    lease = await database.write(leases.take, session_id, worker)
    n = 0
    while True:
        n += 1
        said = UserSaid(turn_id="turn", parts=(Text(f"{n} " * 100),))
        session = await database.write(log.append, lease, [said], at=clock.now())
        say(ack="said", places=[place_of(session)])


async def main(given: argparse.Namespace) -> None:
    sqlite_writer.CHECKPOINT_PAGES = given.checkpoint_pages
    if given.synchronous:
        lower(given.synchronous)
    clock = SystemClock()
    ids = Ids(clock.now)
    database = await sqlite.open_sqlite(given.home / DATABASE)
    worker = ids.make(WORKER)
    await database.write(workers.register, worker, "test", IDENTITY, version=VERSION, at=clock.now())
    try:
        async with asyncio.TaskGroup() as group:
            for _ in range(SESSIONS):
                group.create_task(fill(database, worker, ids.make(SESSION)))
    except* NotSaved as failed:
        say(failed=[type(e).__name__ for e in failed.exceptions])
        raise SystemExit(GIVEN_UP) from None


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("--synchronous", help="a laxer setting than the store's own")
    parser.add_argument("--checkpoint-pages", type=int, default=sqlite_writer.CHECKPOINT_PAGES)
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(arguments()))
