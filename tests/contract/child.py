"""Another process on the same store: opens it, reports that, waits for a line, does one action and prints the result."""

import asyncio
import json
import sys

from holdfast.model.errors import HoldfastError
from holdfast.model.event import SessionOpened, UserSaid
from holdfast.model.message import Text
from holdfast.store.database import Database, Transaction
from holdfast.store.repos import leases, log, meta, sessions
from tests.contract.store_urls import open_place


def put(tx: Transaction, key: str, value: str, topic: str) -> str:
    meta.put(tx, key, value)
    tx.notify(topic)
    return value


async def create(database: Database, session_id: str, at: str) -> object:
    session, new = await database.write(sessions.create, session_id, SessionOpened(source="run"), at=int(at))
    return [session.id, session.seq, session.hash, new]


async def take(database: Database, session_id: str, worker_id: str) -> object:
    lease = await database.write(leases.take, session_id, worker_id)
    return lease.token


async def say(database: Database, session_id: str, worker_id: str, token: str, count: str) -> object:
    lease = leases.Lease(session_id, worker_id, int(token))
    for number in range(int(count)):
        words = UserSaid(turn_id="turn-1", parts=(Text(f"{worker_id} says {number}"),))
        await database.write(log.append, lease, [words], at=number)
    return "said"


async def rename(database: Database, session_id: str, count: str) -> object:
    for number in range(int(count)):
        await database.write(sessions.rename, session_id, f"title {number}", at=number)
    return "renamed"


async def write(database: Database, key: str, value: str, topic: str) -> object:
    return await database.write(put, key, value, topic)


async def main(address: str, action: str, *args: str) -> None:
    database = await open_place(address)
    print("ready", flush=True)
    await asyncio.to_thread(sys.stdin.readline)
    try:
        answer = await {"create": create, "take": take, "say": say, "rename": rename, "write": write}[action](
            database, *args
        )
    except HoldfastError as e:
        answer = {"error": e.code, "message": str(e)}
    print(json.dumps(answer), flush=True)
    await database.close()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
