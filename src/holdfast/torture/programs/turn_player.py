"""Runs one turn with two tool calls, and dies around its nth commit."""

from pathlib import Path

from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.submission import NewMessage
from holdfast.store.database import Database
from holdfast.torture.child import Commands, Parameters, emit, main
from holdfast.torture.crashing_database import CrashingDatabase
from holdfast.torture.fixture import running_worker


async def run_turn(database: Database, parameters: Parameters, commands: Commands) -> None:
    crashing = CrashingDatabase(database, parameters["nth"], parameters["point"])
    async with running_worker(crashing, Path(parameters["folder"])) as worker:
        opened = await worker.engine.open(OpenRequest(source="api"))
        turn = await worker.engine.submit(NewMessage(opened.session.id, "Leave a mark, please."), stream="live")
        async for _ in turn.follow():
            pass
    emit(survived=True)


if __name__ == "__main__":
    main(run_turn)
