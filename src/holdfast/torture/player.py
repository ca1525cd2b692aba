"""A program that plays one turn with two tool calls, and dies around the nth commit of it."""

from pathlib import Path

from holdfast.engine.opening import Opening
from holdfast.store.database import Database
from holdfast.torture.child import Given, Orders, main, say
from holdfast.torture.dying import DyingDatabase
from holdfast.torture.scene import on_stage


async def play(database: Database, given: Given, orders: Orders) -> None:
    dying = DyingDatabase(database, given["nth"], given["when"])
    async with on_stage(dying, Path(given["folder"])) as scene:
        opened = await scene.engine.open(Opening(source="api"))
        async for _ in scene.engine.say(opened.session.id, "Leave a mark, please."):
            pass
    say(survived=True)


if __name__ == "__main__":
    main(play)
