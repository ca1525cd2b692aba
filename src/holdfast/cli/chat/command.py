"""`holdfast chat`: which session, which model, and whether there is a terminal to draw on."""

import asyncio
import sys
from pathlib import Path

import click

from holdfast import config
from holdfast.app import open_app
from holdfast.assemble import open_engine
from holdfast.cli import face
from holdfast.cli.chat.seat import folder_name
from holdfast.engine.engine import Engine
from holdfast.engine.opening import Opening
from holdfast.model.entry import Entry
from holdfast.model.errors import NotFound
from holdfast.model.session import Session
from holdfast.providers import choose
from holdfast.settings import Settings
from holdfast.store import sessions

CHOOSE = ""
"""What `--resume` means without a REF."""


@click.command()
@click.option(
    "--resume", "ref", metavar="[REF]", is_flag=False, flag_value=CHOOSE, help="Take up this session, or choose one."
)
@click.option("--continue", "latest", is_flag=True, help="Take up the last chat of this folder.")
@click.option("--model", metavar="PROVIDER:NAME", help="The model to talk to.")
@click.option("--title", help="The title of a new session.")
def chat(ref: str | None, latest: bool, model: str | None, title: str | None) -> int:
    """Talk with the agent. Ctrl-C interrupts its turn, Ctrl-D leaves."""
    if ref is not None and latest:
        raise click.UsageError("give --resume or --continue, not both")
    if model is not None:
        choose.parse(model)
    opening = Opening(ref=ref, source="chat", own=True, model=model, title=title, workdir=Path.cwd())
    if can_draw():
        return asyncio.run(_in_terminal(face.settings(), opening, latest=latest))
    from holdfast.cli.chat.lines import converse

    return converse(face.settings(), opening, latest=latest)


def can_draw() -> bool:
    """Whether there is a terminal on both ends that can be drawn on."""
    term = config.environment().get("TERM", "")
    return sys.stdin.isatty() and sys.stdout.isatty() and term not in ("", "dumb", "unknown")


async def find(engine: Engine, opening: Opening, *, latest: bool) -> tuple[Session, list[Entry]] | None:
    """The session to begin with, proved whole; None for a new one. Raises NotFound, Ambiguous or Corrupt."""
    ref = opening.ref
    if latest:
        workdir = opening.workdir or Path.cwd()
        ref = await engine.bookmarked(folder_name(workdir))
        if ref is None:
            raise NotFound(f"no chat has been held in {workdir} yet; 'holdfast chat --resume' chooses among all")
    if not ref:
        return None
    found = await engine.ground.database.read(sessions.resolve, ref)
    face.tell_others(ref, found)
    if opening.model is not None and found.session.summary.model != opening.model:
        await engine.open(Opening(ref=found.session.id, model=opening.model))
    return await engine.read(found.session.id)


async def _in_terminal(settings: Settings, opening: Opening, *, latest: bool) -> int:
    from holdfast.cli.chat.leaving import Leaving
    from holdfast.cli.chat.reading import Keyboard
    from holdfast.cli.chat.terminal import Terminal
    from holdfast.cli.chat.tty import Tty, output_on

    environment = config.environment()
    async with (
        open_app(settings) as app,
        open_engine(app.database, settings, environment, kind="chat", attended=True) as engine,
    ):
        first = await find(engine, opening, latest=latest)
        tty = Tty(sys.stdout)
        terminal = Terminal(app, engine, opening, Keyboard(sys.stdin), output_on(tty, environment.get("TERM")))
        if opening.ref == CHOOSE:
            terminal.enter("/resume")
        return await Leaving(terminal, tty).run(first)
