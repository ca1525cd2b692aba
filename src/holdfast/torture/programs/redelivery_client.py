"""Sends the same requests as its siblings, in its own order, without knowing which were sent before."""

import random
from pathlib import Path

from holdfast.engine.submission import NewMessage
from holdfast.model.entry import Entry
from holdfast.store.database import Database
from holdfast.torture.child import Commands, Parameters, emit, main
from holdfast.torture.fixture import ECHO, running_worker

CALLER = "torture"


async def send_requests(database: Database, parameters: Parameters, commands: Commands) -> None:
    requests: list[list[str]] = parameters["requests"]
    random.Random(parameters["seed"]).shuffle(requests)
    async with running_worker(database, Path(parameters["folder"]), model=ECHO) as worker:
        for session_id, key in requests:
            turn_id = ""
            turn = await worker.engine.submit(
                NewMessage(session_id, f"request {key}", caller=CALLER, key=key), stream="live"
            )
            async for item in turn.follow():
                if isinstance(item, Entry):
                    turn_id = getattr(item.event, "turn_id", turn_id)
            emit(delivered=key, turn=turn_id)
    emit(finished=True)


if __name__ == "__main__":
    main(send_requests)
