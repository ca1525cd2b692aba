"""The chat without a terminal to draw on: a line is read, its turn is played and shown, and then the next is read.

What is said is safe as soon as the next line can be typed.
"""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Sequence

from holdfast import config
from holdfast.app import App, open_app
from holdfast.assemble import open_engine
from holdfast.cli import errors, reply, signals
from holdfast.cli.chat.command import find
from holdfast.cli.chat.greeting import greeting, model_of, welcome
from holdfast.cli.chat.seat import ChatSeat
from holdfast.cli.chat.state import look
from holdfast.cli.spinner import Spinner
from holdfast.engine.engine import Engine
from holdfast.engine.opening import Opening
from holdfast.engine.rewind import Rewind
from holdfast.interop.visible import one_line, visible
from holdfast.model.entry import Entry
from holdfast.model.errors import Unavailable
from holdfast.model.message import Content, Text
from holdfast.model.session import Session, messages, standing
from holdfast.settings import Settings
from holdfast.slash import registry

SHOWN_ON_RESUME = 4


class LineSeat(ChatSeat):
    """The person's seat, or a script's, at a pipe or a terminal that cannot be drawn on."""

    is_left = False
    is_signalled = False

    def tell(self, text: str) -> None:
        print(visible(text))

    def leave(self) -> None:
        self.is_left = True

    async def depart(self) -> None:
        """Between the lines nobody watches."""

    async def arrive(self, session: Session | None, entries: Sequence[Entry]) -> None:
        """Show that all of it is here."""
        if session is None:
            return
        state = await self.engine.ground.database.read(look, session.id)
        print(welcome(session, state, self.engine.ground.worker_id))
        for message in messages(standing(entries))[-SHOWN_ON_RESUME:]:
            print(f"{message.role}: {visible(message.text)}")
        if session.summary.open_turn is not None and session.lease_worker is None:
            print("Its last turn was cut off before its end; your next words close it.")
        print()

    async def hear(self, line: str) -> None:
        if not await registry.run(self, line):
            await self.say((Text(line),))

    async def say(self, parts: tuple[Content, ...], *, instead: Rewind | None = None) -> None:
        """One turn, to its end.

        Ctrl-C interrupts it and keeps what was said; any other signal leaves it as it is and leaves. A second
        one leaves at once.
        """
        session_id = await self.begin() if instead is None else instead.session_id
        reactions: list[asyncio.Task[object]] = []

        def react(number: int) -> None:
            deed = self.engine.interrupt(session_id) if number == signal.SIGINT else self.engine.drain()
            reactions.append(asyncio.ensure_future(deed))

        with signals.caught(react):
            try:
                await self._turn(session_id, parts, instead)
            except Unavailable:
                if not reactions:
                    raise
                self.is_left = self.is_signalled = True
            finally:
                for task in reactions:
                    await task

    async def _turn(self, session_id: str, parts: tuple[Content, ...], instead: Rewind | None) -> None:
        async with Spinner("thinking") as spinner:
            said = self.engine.say(session_id, parts, mode="queue", instead=instead)
            items = reply.until_words(said, spinner)
            outcome = await reply.show(items, words=sys.stdout, notes=sys.stderr)
        # Words that others have queued meanwhile are answered now: at the prompt nothing runs.
        await self.engine.settled()
        if (problem := reply.complaint(outcome.ended)) is not None:
            print(f"[{one_line(problem)}]")
        elif self.engine.titles is not None:
            self.engine.titles.give(session_id)
        print()


def converse(settings: Settings, opening: Opening, *, latest: bool) -> int:
    """The whole of a chat: lines are read in between the turns, so that a signal meets whoever is at work."""
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        try:
            app, engine = runner.run(_enter(stack, settings))
            seat = LineSeat(app, engine, opening)
            model = runner.run(_begin(seat, opening, latest=latest))
            print(greeting(model, settings) + "\n")
            while not seat.is_left and (line := _line()) is not None:
                if line.strip():
                    runner.run(seat.hear(line))
            if seat.is_signalled:
                return errors.INTERRUPTED
            runner.run(seat.say_goodbye())
        finally:
            runner.run(stack.aclose())
    return errors.DONE


async def _enter(stack: contextlib.AsyncExitStack, settings: Settings) -> tuple[App, Engine]:
    app = await stack.enter_async_context(open_app(settings))
    # While a turn is played no line is read, so nobody can be asked in place.
    opened = open_engine(app.database, settings, config.environment(), kind="chat")
    return app, await stack.enter_async_context(opened)


async def _begin(seat: LineSeat, opening: Opening, *, latest: bool) -> str:
    """Take up the session that was asked for, if one was; the model one talks with."""
    if opening.ref == "":
        await registry.run(seat, "/sessions")
    first = await find(seat.engine, opening, latest=latest)
    await seat.take_up(first)
    return model_of(first, seat.model)


def _line() -> str | None:
    """The next line; None at the end. Ctrl-C at the prompt only clears it."""
    while True:
        try:
            return input("you ▸ " if sys.stdin.isatty() else "")
        except EOFError:
            return None
        except KeyboardInterrupt:
            print("\n(Ctrl-D leaves)")
