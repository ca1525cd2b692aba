"""A program that brings the same requests as others, in an order of its own, and does not know which were brought before."""

import random
from pathlib import Path

from holdfast.model.entry import Entry
from holdfast.store.database import Database
from holdfast.torture.child import Given, Orders, main, say
from holdfast.torture.scene import ECHO, on_stage

CALLER = "torture"


async def bring(database: Database, given: Given, orders: Orders) -> None:
    requests: list[list[str]] = given["requests"]
    random.Random(given["seed"]).shuffle(requests)
    async with on_stage(database, Path(given["folder"]), model=ECHO) as scene:
        for session_id, key in requests:
            turn_id = ""
            async for item in scene.engine.say(session_id, f"request {key}", caller=CALLER, key=key):
                if isinstance(item, Entry):
                    turn_id = getattr(item.event, "turn_id", turn_id)
            say(brought=key, turn=turn_id)
    say(all=True)


if __name__ == "__main__":
    main(bring)
