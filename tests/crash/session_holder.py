"""Keeps sessions open as the commands and the server do, until it gets a command to exit or is ended in another way.

Of every three sessions one waits after a turn, one is in a turn with half a reply generated, and one is in a turn with
a queued message. The program emits every accepted message before the test can end it.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

import msgspec

from holdfast import config
from holdfast.cli import signals
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.engine.engine import Engine
from holdfast.engine.submission import NewMessage
from holdfast.model.errors import Conflict
from holdfast.store.repos import log
from holdfast.torture.child import emit
from holdfast.wiring.engine import open_engine
from holdfast.wiring.store import App, open_app

OWNING = ("chat", "run", "library", "cron", "batch")
"""Sources whose commands own their sessions."""
STORY = "story.json"
HALF = {"steps": [{"say": "Once upon", "hang": True}]}
WHOLE = {"steps": [{"say": "Once upon a time."}, {"say": "The end."}]}
"""The model generates half a reply and hangs; the worker that resumes the turn gets all of it."""
DRAIN_SECONDS = 0.2
LIFE_SECONDS = 300
"""The maximum lifetime, in case the parent is killed."""
DECLARED_DEAD = 4
MEMORY_BYTES = 1 << 30


class SessionHolder:
    def __init__(self, app: App, engine: Engine, given: argparse.Namespace) -> None:
        self._app = app
        self._engine = engine
        self._given = given

    async def run(self) -> int:
        """Open the sessions, emit them, and execute one command."""
        opened = await asyncio.gather(*(self._open(number) for number in range(self._given.count)))
        talking = [session_id for number, (session_id, _) in enumerate(opened) if number % 3]
        await asyncio.gather(*map(self._wait_for_draft, talking))
        emit(worker=self._engine.services.worker_id, sessions=dict(opened), talking=talking)
        if self._given.no_input:
            await asyncio.sleep(LIFE_SECONDS)
        match await _next_command():
            case "close":
                return 0
            case "allocate":
                emit(allocated=sum(bytearray(os.urandom(1 << 20) * (MEMORY_BYTES >> 20))[:: 1 << 12]))
        os._exit(0)

    async def _open(self, number: int) -> tuple[str, list[str]]:
        """Open one session; return it and the messages it accepted."""
        source, home = self._given.source, self._given.home
        opening = OpenRequest(
            source=source,
            own=source in OWNING,
            channel=f"test:{os.getpid()}:{number}" if source == "gateway" else None,
            model=f"scripted:{home / STORY}" if number % 3 else "scripted:echo",
            workdir=home,
        )
        session_id = (await self._engine.open(opening)).session.id
        words = [f"{source} {os.getpid()} {number} {count}" for count in range(2 if number % 3 == 2 else 1)]
        for text in words:
            if number % 3:
                await self._engine.submit(NewMessage(session_id, text))
            else:
                turn = await self._engine.submit(NewMessage(session_id, text), stream="live")
                async for _ in turn.follow():
                    pass
        return session_id, words

    async def _wait_for_draft(self, session_id: str) -> None:
        """Wait until half of the reply is durable."""
        while await self._app.database.read(log.get_draft, session_id) is None:
            await asyncio.sleep(0.05)


async def _next_command() -> str:
    """The next line of standard input. The event loop waits for it: a reading thread could not be stopped."""
    loop = asyncio.get_running_loop()
    readable = asyncio.Event()
    loop.add_reader(sys.stdin, readable.set)
    try:
        await readable.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline().strip()


async def main(given: argparse.Namespace) -> int:
    settings = msgspec.structs.replace(config.load(given.home), model="scripted:echo")
    async with (
        open_app(settings) as app,
        open_engine(app.database, settings, config.environment(), kind=given.source, sweeps=given.sweeps) as engine,
    ):
        holder = SessionHolder(app, engine, given)
        try:
            if not given.signals:
                return await holder.run()
            return await signals.run_until_signalled(holder.run(), lambda: engine.drain(DRAIN_SECONDS), engine.death)
        except Conflict as e:
            emit(died=str(e))
            return DECLARED_DEAD


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("source")
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--signals", action="store_true", help="handle signals as the commands do; otherwise they kill")
    parser.add_argument("--no-input", action="store_true", help="do not read standard input")
    parser.add_argument("--sweeps", action="store_true", help="be a long-lived worker with a janitor")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(arguments())))
