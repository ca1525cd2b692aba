"""A worker with sessions in containers, to be killed at any moment.

    python -m tests.tools.backends.container_worker HOME SETTINGS SEED SESSION...

It first continues every session and emits what is in its container. Then it runs tool calls, sweeps, and changes of the
settings at random until its input ends, and emits each command that was acknowledged.
"""

import asyncio
import os
import random
import sys
from pathlib import Path

import msgspec

from holdfast.clock import SystemClock
from holdfast.model.message import text_of
from holdfast.model.tool import ToolContext
from holdfast.process_lookup import current_identity
from holdfast.settings import ContainerSettings
from holdfast.store.database import Database
from holdfast.store.repos import containers
from holdfast.store.sqlite.driver import open_sqlite
from holdfast.tools.backends.container import ContainerBackend
from holdfast.tools.backends.registry import Backends
from holdfast.tools.terminal import TerminalTool
from holdfast.torture.child import emit

OTHER_TMPFS = ("/tmp:size=8m",)


class Worker:
    def __init__(self, database: Database, home: Path, settings: ContainerSettings) -> None:
        self._database = database
        self._home = home
        environment = {name: os.environ[name] for name in ("PATH", "HOME") if name in os.environ}
        changed = msgspec.structs.replace(settings, tmpfs=OTHER_TMPFS)
        self._backends = [
            ContainerBackend(database, SystemClock(), current_identity(), one, environment, home)
            for one in (settings, changed)
        ]
        self._terminals = [
            TerminalTool(environment, home=home, backends=Backends([backend])) for backend in self._backends
        ]

    async def call(self, session_id: str, command: str, settings: int = 0) -> tuple[bool, str, str]:
        """Run a command; return whether it succeeded, its output, and the container of the session."""
        context = ToolContext(
            session_id=session_id,
            turn_id="turn-1",
            call_id=f"call-{random.getrandbits(32)}",
            workdir=self._home / "work" / session_id,
            files=self._home / "files" / session_id,
            terminal="container",
        )
        output = await self._terminals[settings].run({"command": command}, context)
        current = await self._database.read(containers.get_current, session_id)
        return output.ok, text_of(output.parts), current.id if current else ""

    async def sweep(self) -> None:
        await self._backends[0].remove_unused()

    async def settle(self, session_id: str) -> None:
        ok, text, container = await self.call(session_id, "touch /marks; cat /marks")
        emit(settled=session_id, ok=ok, text=text, container=container)

    async def act(self, session_id: str, choice: random.Random) -> None:
        """Do things at random, for ever."""
        settings = 0
        while True:
            kind = choice.random()
            if kind < 0.15:
                await self.sweep()
            elif kind < 0.25:
                settings = 1 - settings
            mark = f"mark-{choice.getrandbits(40):x}"
            ok, text, container = await self.call(session_id, f"echo {mark} >>/marks", settings)
            emit(mark=mark, session=session_id, ok=ok, text=text, container=container)


async def main(home: Path, settings: ContainerSettings, seed: str, session_ids: list[str]) -> None:
    database = await open_sqlite(home / "holdfast.db")
    worker = Worker(database, home, settings)
    emit(started=True)
    await asyncio.gather(*(worker.settle(one) for one in session_ids))
    emit(all_settled=True)
    if seed == "settle":
        await worker.sweep()
        await database.close()
        return
    await asyncio.gather(*(worker.act(one, random.Random(f"{seed} {one}")) for one in session_ids))


if __name__ == "__main__":
    given = msgspec.json.decode(sys.argv[2], type=ContainerSettings)
    asyncio.run(main(Path(sys.argv[1]), given, sys.argv[3], sys.argv[4:]))
