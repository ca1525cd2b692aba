"""Holds leases and executes the commands it receives on each of them, also after it has lost them."""

from typing import Any

from holdfast.clock import SystemClock
from holdfast.model.errors import HoldfastError
from holdfast.model.event import UserSaid
from holdfast.model.ids import WORKER, Ids
from holdfast.model.message import Text
from holdfast.store.database import Database
from holdfast.store.repos import leases, log, ownership, workers
from holdfast.store.repos.leases import Lease
from holdfast.torture.child import Commands, Parameters, emit, main, register


async def hold_leases(database: Database, parameters: Parameters, commands: Commands) -> None:
    clock = SystemClock()
    worker = Ids(clock.now).make(WORKER)
    await register(database, worker)
    held = [await database.write(leases.take, session_id, worker) for session_id in parameters["sessions"]]
    for session_id in parameters["sessions"]:
        await database.write(ownership.attach, session_id, worker)
    emit(worker=worker)
    while (command := await commands.next()) != "leave":
        for lease in held:
            outcome = await _execute(database, command, lease, clock.now())
            emit(command=command, session=lease.session_id, outcome=outcome)
        emit(done=command)


async def _execute(database: Database, command: str, lease: Lease, at: int) -> Any:
    """Execute a command; any that is not listed here is a message to append.

    Return True if it had an effect; False or the name of the error if not.
    """
    message = UserSaid(turn_id=lease.worker_id, parts=(Text(command),))
    try:
        match command:
            case "draft":
                await database.write(log.save_draft, lease, log.ReplyDraft("turn-late", "too late", at))
            case "take":
                await database.write(leases.take, lease.session_id, lease.worker_id)
            case "beat":
                await database.write(workers.record_heartbeat, lease.worker_id, at=at)
            case "release":
                return await database.write(leases.release, lease)
            case _:
                await database.write(log.append, lease, [message], at=at)
    except HoldfastError as e:
        return type(e).__name__
    return True


if __name__ == "__main__":
    main(hold_leases)
