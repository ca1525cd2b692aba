"""A worker on another machine: plays a turn on a store in PostgreSQL until it is killed in the midst of a tool."""

import asyncio
import sys
from pathlib import Path

import msgspec

from holdfast.identity import identity
from holdfast.providers.scripted import Call, Step
from holdfast.store.postgres import open_postgres
from tests.engine.stage import set_up


async def main(url: str, folder: str, host: str) -> None:
    database = await open_postgres(url)
    ours = msgspec.structs.replace(identity(), host=host)
    script = (Step(say="Good night.", call=(Call(name="sleep", arguments={}),)), Step(say="never"))
    stage = await set_up(Path(folder), *script, database=database, who=ours)  # type: ignore[arg-type] # any store will do
    session = await stage.session(source="api")
    await stage.engine.admit(session.id, "Sleep")
    await stage.sleeper.sleeping.wait()
    print(session.id, stage.worker_id, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
