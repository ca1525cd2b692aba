"""A program that holds one session and does with it what it is told to, line by line."""

import argparse
import asyncio
import os
import signal
import sys
from pathlib import Path

from holdfast.clock import SystemClock
from holdfast.model.errors import HoldfastError
from holdfast.model.event import SessionOpened, UserSaid
from holdfast.model.ids import WORKER, Ids
from holdfast.model.message import Text
from holdfast.model.session import Session
from holdfast.store import leases, log, sessions, sqlite, workers
from holdfast.store.database import Database, Transaction
from holdfast.store.leases import Lease
from tests.crash.say import place_of, say
from tests.crash.writer import DATABASE, IDENTITY, VERSION


async def obey(database: Database, lease: Lease, order: str) -> object:
    at = SystemClock().now()
    said = UserSaid(turn_id="first", parts=(Text(order),))
    match order:
        case "append":
            return place_of(await database.write(log.append, lease, [said], at=at))
        case "append and stop midway":
            return place_of(await database.write(append_and_stop, lease, said, at=at))
        case "draft":
            return await database.write(log.keep_draft, lease, log.Draft("first", order, at))
        case "release":
            return await database.write(leases.release, lease)
        case "take":
            return (await database.write(leases.take, lease.session_id, lease.worker_id)).token
        case "beat":
            return await database.write(workers.beat, lease.worker_id, at=at)
        case _:
            raise AssertionError(f"no such order: {order}")


def append_and_stop(tx: Transaction, lease: Lease, said: UserSaid, *, at: int) -> Session:
    """Fall asleep with the event written but not committed."""
    session = log.append(tx, lease, [said], at=at)
    os.kill(os.getpid(), signal.SIGSTOP)
    return session


async def main(given: argparse.Namespace) -> None:
    clock = SystemClock()
    database = await sqlite.open_sqlite(given.home / DATABASE)
    worker = Ids(clock.now).make(WORKER)
    await database.write(workers.register, worker, "test", IDENTITY, version=VERSION, at=clock.now())
    await database.write(sessions.create, given.session, SessionOpened(source="run"), at=clock.now())
    lease = await database.write(leases.take, given.session, worker)
    say(holds=lease.session_id, worker=worker, token=lease.token)
    while order := (await asyncio.to_thread(sys.stdin.readline)).strip():
        try:
            say(order=order, result=await obey(database, lease, order))
        except HoldfastError as e:
            say(order=order, error=type(e).__name__)
    await database.close()


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("session")
    return parser.parse_args()


if __name__ == "__main__":
    asyncio.run(main(arguments()))
