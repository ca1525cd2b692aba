"""A program that has sessions open as the faces have them, until it is told to leave or is ended in some other way.

Of every three sessions one waits after a turn, one is in mid-turn with half a reply said, and one is in mid-turn
with more words waiting. Every word that was accepted is told before anything can happen to the program.
"""

import argparse
import asyncio
import os
import sys
from pathlib import Path

import msgspec

from holdfast import config
from holdfast.app import App, open_app
from holdfast.assemble import open_engine
from holdfast.cli import signals
from holdfast.engine.engine import Engine
from holdfast.engine.opening import Opening
from holdfast.model.errors import Conflict
from holdfast.store import log
from tests.crash.say import say

OWNING = ("chat", "run", "library", "cron", "batch")
"""Sources whose faces keep their sessions open."""
STORY = "story.json"
HALF = {"steps": [{"say": "Once upon", "hang": True}]}
WHOLE = {"steps": [{"say": "Once upon a time."}, {"say": "The end."}]}
"""The model says half of it and hangs; whoever takes the turn up later gets the whole."""
DRAIN_SECONDS = 0.2
LIFE_SECONDS = 300
"""So that nothing stays behind if whoever started it is killed."""
DECLARED_DEAD = 4
MEMORY_BYTES = 1 << 30


class Liver:
    def __init__(self, app: App, engine: Engine, given: argparse.Namespace) -> None:
        self._app = app
        self._engine = engine
        self._given = given

    async def live(self) -> int:
        """Open the sessions, say so, and do as told."""
        opened = await asyncio.gather(*(self._open(number) for number in range(self._given.count)))
        talking = [session_id for number, (session_id, _) in enumerate(opened) if number % 3]
        await asyncio.gather(*map(self._half_said, talking))
        say(worker=self._engine.ground.worker_id, sessions=dict(opened), talking=talking)
        if self._given.deaf:
            await asyncio.sleep(LIFE_SECONDS)
        match await _order():
            case "close":
                return 0
            case "eat":
                say(eaten=sum(bytearray(os.urandom(1 << 20) * (MEMORY_BYTES >> 20))[:: 1 << 12]))
        os._exit(0)

    async def _open(self, number: int) -> tuple[str, list[str]]:
        """One session, and the words it was given."""
        source, home = self._given.source, self._given.home
        opening = Opening(
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
                await self._engine.admit(session_id, text)
            else:
                async for _ in self._engine.say(session_id, text):
                    pass
        return session_id, words

    async def _half_said(self, session_id: str) -> None:
        """Until a crash would leave half of the reply."""
        while await self._app.database.read(log.draft, session_id) is None:
            await asyncio.sleep(0.05)


async def _order() -> str:
    """The next line of standard input, waited for by the event loop: a thread that reads could not be stopped."""
    loop = asyncio.get_running_loop()
    can_be_read = asyncio.Event()
    loop.add_reader(sys.stdin, can_be_read.set)
    try:
        await can_be_read.wait()
    finally:
        loop.remove_reader(sys.stdin)
    return sys.stdin.readline().strip()


async def main(given: argparse.Namespace) -> int:
    settings = msgspec.structs.replace(config.load(given.home), model="scripted:echo")
    async with (
        open_app(settings) as app,
        open_engine(app.database, settings, config.environment(), kind=given.source, sweeps=given.sweeps) as engine,
    ):
        liver = Liver(app, engine, given)
        try:
            if not given.heeds:
                return await liver.live()
            return await signals.unless_signalled(liver.live(), lambda: engine.drain(DRAIN_SECONDS), engine.death)
        except Conflict as e:
            say(died=str(e))
            return DECLARED_DEAD


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("home", type=Path)
    parser.add_argument("source")
    parser.add_argument("--count", type=int, default=3)
    parser.add_argument("--heeds", action="store_true", help="take signals as the commands do; otherwise they kill")
    parser.add_argument("--deaf", action="store_true", help="do not listen to standard input")
    parser.add_argument("--sweeps", action="store_true", help="be one of the long-lived workers that sweep")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(asyncio.run(main(arguments())))
