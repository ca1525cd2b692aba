"""`holdfast chat`: a conversation, line by line. What is said is safe as soon as the next line can be typed."""

import asyncio
import contextlib
import signal
import sys
from pathlib import Path

import click

from holdfast import config
from holdfast.app import open_app
from holdfast.assemble import open_engine
from holdfast.cli import errors, face, reply, signals
from holdfast.cli.spinner import Spinner
from holdfast.engine.engine import Engine, Opening
from holdfast.interop.visible import one_line, visible
from holdfast.model.errors import Unavailable
from holdfast.model.session import messages
from holdfast.providers import choose
from holdfast.settings import EMBEDDED_MODEL, Settings

HINT = """This very small model runs inside Holdfast, without a key: it shows how things work and knows little.
For a better one set OPENAI_API_KEY or ANTHROPIC_API_KEY, or `model` in {file}."""
SHOWN_ON_RESUME = 4


@click.command()
@click.option("--resume", "ref", metavar="REF", help="Take up this session.")
@click.option("--model", metavar="PROVIDER:NAME", help="The model to talk to.")
@click.option("--title", help="The title of a new session.")
def chat(ref: str | None, model: str | None, title: str | None) -> int:
    """Talk with the agent. Ctrl-C interrupts its turn, Ctrl-D leaves."""
    return converse(Opening(ref=ref, source="chat", own=True, model=model, title=title, workdir=Path.cwd()))


def converse(opening: Opening) -> int:
    """The whole of a chat: lines are read in between the turns, so that a signal meets whoever is at work."""
    settings = face.settings()
    if opening.model is not None:
        choose.parse(opening.model)
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        try:
            engine = runner.run(_enter(stack, settings))
            session_id = runner.run(_resume(engine, opening)) if opening.ref is not None else None
            _greet(opening.model or settings.model, settings)
            while (line := _line()) is not None and line.strip() not in ("/quit", "/exit"):
                if line.strip():
                    # A session begins with the first words: one in which nothing was said does not exist.
                    session_id = session_id or runner.run(engine.open(opening)).session.id
                    if not runner.run(_turn(engine, session_id, line)):
                        return errors.INTERRUPTED
            if session_id is not None:
                runner.run(_leave(engine, session_id))
        finally:
            runner.run(stack.aclose())
    return errors.DONE


async def _enter(stack: contextlib.AsyncExitStack, settings: Settings) -> Engine:
    app = await stack.enter_async_context(open_app(settings))
    return await stack.enter_async_context(open_engine(app.database, settings, config.environment(), kind="chat"))


async def _resume(engine: Engine, opening: Opening) -> str:
    """Take a session up again, and show that all of it is here."""
    opened = await engine.open(opening)
    session, entries = await engine.read(opened.session.id)
    if opened.others:
        face.note(f"several sessions are titled {opening.ref!r}; this is the one used last")
    count = session.summary.message_count
    print(f"Session {session.id}: {count} messages, all of them here (proved by hash {session.hash[:12]}…)")
    for message in messages(entries)[-SHOWN_ON_RESUME:]:
        print(f"{message.role}: {visible(message.text)}")
    print()
    return session.id


def _greet(model: str, settings: Settings) -> None:
    print(f"Holdfast, with {model}. Ctrl-D or /quit leaves; everything is kept.")
    if model == EMBEDDED_MODEL:
        print(HINT.format(file=settings.home / "config.toml"))
    print()


def _line() -> str | None:
    """The next line; None at the end. Ctrl-C at the prompt only clears it."""
    while True:
        try:
            return input("you ▸ " if sys.stdin.isatty() else "")
        except EOFError:
            return None
        except KeyboardInterrupt:
            print("\n(Ctrl-D leaves)")


async def _turn(engine: Engine, session_id: str, said: str) -> bool:
    """One turn; False if a signal ended the chat.

    Ctrl-C interrupts the turn and keeps what was said; any other signal leaves it as it is and leaves.
    A second one leaves at once.
    """
    reactions: list[asyncio.Task[object]] = []

    def react(number: int) -> None:
        deed = engine.interrupt(session_id) if number == signal.SIGINT else engine.drain()
        reactions.append(asyncio.ensure_future(deed))

    with signals.caught(react):
        try:
            async with Spinner("thinking") as spinner:
                items = reply.until_words(engine.say(session_id, said, mode="queue"), spinner)
                outcome = await reply.show(items, words=sys.stdout, notes=sys.stderr)
            # Words that others have queued meanwhile are answered now: at the prompt nothing runs.
            await engine.settled()
        except Unavailable:
            if not reactions:
                raise
            return False
        finally:
            for task in reactions:
                await task
    if (problem := reply.complaint(outcome.ended)) is not None:
        print(f"[{one_line(problem)}]")
    print()
    return True


async def _leave(engine: Engine, session_id: str) -> None:
    """End the session; it can be taken up again at any time."""
    await engine.leave(session_id)
    print(f"Kept as {session_id}; 'holdfast chat --resume {session_id}' takes it up again.")
