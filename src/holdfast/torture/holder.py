"""A program that holds sessions and does with them as it is told, also when it no longer may."""

from typing import Any

from holdfast.clock import SystemClock
from holdfast.model.errors import HoldfastError
from holdfast.model.event import UserSaid
from holdfast.model.ids import WORKER, Ids
from holdfast.model.message import Text
from holdfast.store import leases, log, owners, workers
from holdfast.store.database import Database
from holdfast.store.leases import Lease
from holdfast.torture.child import Given, Orders, main, register, say


async def hold(database: Database, given: Given, orders: Orders) -> None:
    clock = SystemClock()
    worker = Ids(clock.now).make(WORKER)
    await register(database, worker)
    held = [await database.write(leases.take, session_id, worker) for session_id in given["sessions"]]
    for session_id in given["sessions"]:
        await database.write(owners.attach, session_id, worker)
    say(holds=worker)
    while (order := await orders.next()) != "leave":
        for lease in held:
            say(order=order, session=lease.session_id, done=await _try(database, order, lease, clock.now()))
        say(obeyed=order)


async def _try(database: Database, order: str, lease: Lease, at: int) -> Any:
    """What came of it: False or the name of an error if it was refused."""
    said = UserSaid(turn_id=lease.worker_id, parts=(Text(order),))
    try:
        match order.partition(" ")[0]:
            case "draft":
                await database.write(log.keep_draft, lease, log.Draft("turn-late", "too late", at))
            case "take":
                await database.write(leases.take, lease.session_id, lease.worker_id)
            case "beat":
                await database.write(workers.beat, lease.worker_id, at=at)
            case "release":
                return await database.write(leases.release, lease)
            case _:
                await database.write(log.append, lease, [said], at=at)
    except HoldfastError as e:
        return type(e).__name__
    return True


if __name__ == "__main__":
    main(hold)
