"""`holdfast chat`: a conversation, line by line. What is said is safe as soon as the next line can be typed."""

import asyncio
import contextlib
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
from holdfast.model.session import Session, messages
from holdfast.providers import choose
from holdfast.settings import EMBEDDED_MODEL, Settings
from holdfast.store import sessions

HINT = "This is a very small model that runs inside Holdfast: it shows how things work and knows little. For a better one set OPENAI_API_KEY or ANTHROPIC_API_KEY, or `model` in {file}."
SHOWN_ON_RESUME = 4


@click.command()
@click.option("--resume", "ref", metavar="REF", help="Take up this session.")
@click.option("--model", metavar="PROVIDER:NAME", help="The model to talk to.")
@click.option("--title", help="The title of a new session.")
def chat(ref: str | None, model: str | None, title: str | None) -> int:
    """Talk with the agent. Ctrl-C interrupts its turn, Ctrl-D leaves."""
    return converse(Opening(ref=ref, source="chat", model=model, title=title, workdir=Path.cwd()))


def converse(opening: Opening) -> int:
    """The whole of a chat: lines are read in between the turns, so that a signal meets whoever is at work."""
    settings = face.settings()
    if opening.model is not None:
        choose.parse(opening.model)
    with asyncio.Runner() as runner:
        stack = contextlib.AsyncExitStack()
        try:
            engine = runner.run(_enter(stack, settings))
            session = runner.run(_begin(engine, opening, settings))
            while (line := _line()) is not None:
                if line.strip() in ("/quit", "/exit"):
                    break
                if line.strip():
                    runner.run(_turn(engine, session.id, line))
            runner.run(_leave(engine, session))
        finally:
            runner.run(stack.aclose())
    return errors.DONE


async def _enter(stack: contextlib.AsyncExitStack, settings: Settings) -> Engine:
    app = await stack.enter_async_context(open_app(settings))
    return await stack.enter_async_context(open_engine(app.database, settings, config.environment(), kind="chat"))


async def _begin(engine: Engine, opening: Opening, settings: Settings) -> Session:
    opened = await engine.open(opening)
    session, entries = await engine.read(opened.session.id)
    print(f"Holdfast · {session.summary.model} · session {session.id}")
    if session.summary.model == EMBEDDED_MODEL:
        print(HINT.format(file=settings.home / "config.toml"))
    if not opened.new:
        said = messages(entries)
        print(f"{session.summary.message_count} messages, all of them here (proved by hash {session.hash[:12]})")
        for message in said[-SHOWN_ON_RESUME:]:
            print(f"{message.role}: {visible(message.text)}")
    print("Ctrl-D or /quit leaves; everything is kept.\n")
    return session


def _line() -> str | None:
    """The next line; None at the end. Ctrl-C at the prompt only clears it."""
    while True:
        try:
            return input("you ▸ " if sys.stdin.isatty() else "")
        except EOFError:
            return None
        except KeyboardInterrupt:
            print("\n(Ctrl-D leaves)")


async def _turn(engine: Engine, session_id: str, said: str) -> None:
    """One turn; Ctrl-C interrupts it and keeps what was said, a second one leaves at once."""
    interrupts: list[asyncio.Task[bool]] = []
    with signals.caught(lambda: interrupts.append(asyncio.ensure_future(engine.interrupt(session_id)))):
        async with Spinner("thinking") as spinner:
            items = reply.until_words(engine.say(session_id, said, mode="queue"), spinner)
            outcome = await reply.show(items, words=sys.stdout, notes=sys.stderr)
    for task in interrupts:
        await task
    if (problem := reply.complaint(outcome.ended)) is not None:
        print(f"[{one_line(problem)}]")
    print()


async def _leave(engine: Engine, session: Session) -> None:
    """End the session, if anything was said in it; one that stayed empty goes to the trash."""
    ground = engine.ground
    found = await ground.database.read(sessions.get, session.id)
    if found.summary.message_count == 0:
        await ground.database.write(sessions.trash, session.id, at=ground.clock.now(), reason="nothing was said")
        return
    await ground.database.write(sessions.end, session.id, "cli_close", at=ground.clock.now())
    print(f"Kept as {session.id}; 'holdfast chat --resume {session.id}' takes it up again.")
