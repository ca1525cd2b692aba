"""A worker on another machine: runs a turn on a store in PostgreSQL until it is killed during a tool call."""

import asyncio
import sys
from pathlib import Path

import msgspec

from holdfast.process_lookup import current_identity
from holdfast.providers.scripted import ScriptedCall, ScriptStep
from holdfast.store.postgres.driver import open_postgres
from tests.engine.stage import set_up


async def main(url: str, folder: str, host: str) -> None:
    database = await open_postgres(url)
    ours = msgspec.structs.replace(current_identity(), host=host)
    script = (ScriptStep(say="Good night.", call=(ScriptedCall(name="sleep", arguments={}),)), ScriptStep(say="never"))
    stage = await set_up(Path(folder), *script, database=database, who=ours)  # type: ignore[arg-type] # any store will do
    session = await stage.session(source="api")
    await stage.admit(session.id, "Sleep")
    await stage.hanging_tool.sleeping.wait()
    print(session.id, stage.worker_id, flush=True)
    await asyncio.Event().wait()


if __name__ == "__main__":
    asyncio.run(main(*sys.argv[1:]))
