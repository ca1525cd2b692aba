"""`holdfast chat`: options, and the choice between full-screen and line mode."""

import asyncio
import sys
from pathlib import Path

import click

from holdfast import config
from holdfast.cli import context, garbage_collection, model_setup
from holdfast.cli.chat.resume import find_session
from holdfast.cli.parsing.session_ref import REF
from holdfast.engine.admission.open_session import OpenRequest
from holdfast.model.errors import Invalid
from holdfast.model.mode import MODES, Mode
from holdfast.providers import registry
from holdfast.settings import TERMINALS, Settings
from holdfast.wiring.engine import open_engine
from holdfast.wiring.store import open_app

CHOOSE = ""
"""The value of `--resume` without a REF."""


@click.command()
@click.argument("prompt", required=False)
@click.option(
    "--resume",
    "ref",
    type=REF,
    metavar="[REF]",
    is_flag=False,
    flag_value=CHOOSE,
    help="Resume this session, or choose one.",
)
@click.option("--continue", "latest", is_flag=True, help="Resume the last chat in this directory.")
@click.option("--model", metavar="PROVIDER:NAME", help="Use this model.")
@click.option("--title", help="Set the title of a new session.")
@click.option("--terminal", type=click.Choice(TERMINALS), help="Run commands in this backend, for a new session.")
@click.option("--mode", type=click.Choice(MODES), help="Set the permission mode of the session.")
def chat(
    *,
    prompt: str | None,
    ref: str | None,
    latest: bool,
    model: str | None,
    title: str | None,
    terminal: str | None,
    mode: Mode | None,
) -> int:
    """Chat with the agent. PROMPT is the first message. Ctrl-C interrupts a turn, Ctrl-D quits."""
    if prompt is not None and not prompt.strip():
        raise Invalid("the prompt is empty")
    if ref is not None and latest:
        raise click.UsageError("--resume and --continue cannot be used together")
    if model is not None:
        registry.parse(model)
    context.require_terminal(terminal)
    opening = OpenRequest(
        ref=ref,
        source="chat",
        own=True,
        model=model,
        title=title,
        workdir=Path.cwd(),
        terminal=terminal or "",
        mode=mode,
    )
    if ref is None and not latest:
        model_setup.require_model(model or context.settings().model)
    context.hide_secrets()
    if can_draw():
        return asyncio.run(_in_terminal(context.settings(), opening, prompt, latest=latest))
    from holdfast.cli.chat.line_mode import run_chat

    return run_chat(context.settings(), opening, prompt, latest=latest)


def can_draw() -> bool:
    """Whether input and output are a terminal that supports full-screen mode."""
    term = config.environment().get("TERM", "")
    return sys.stdin.isatty() and sys.stdout.isatty() and term not in ("", "dumb", "unknown")


async def _in_terminal(settings: Settings, opening: OpenRequest, prompt: str | None, *, latest: bool) -> int:
    from holdfast.cli.chat.app import ChatApp
    from holdfast.cli.chat.input.keyboard import Keyboard
    from holdfast.cli.chat.output.tty import Tty, output_on
    from holdfast.cli.chat.shutdown import ChatShutdown

    environment = config.environment()
    async with (
        open_app(settings) as app,
        open_engine(
            app.database, settings, environment, supervisor=app.supervisor, kind="chat", attended=True
        ) as engine,
    ):
        first = await find_session(engine, opening, latest=latest)
        tty = Tty(sys.stdout)
        terminal = ChatApp(app, engine, opening, Keyboard(sys.stdin), output_on(tty, environment.get("TERM")))
        if opening.ref == CHOOSE:
            terminal.enter("/resume")
        if prompt is not None:
            terminal.enter(prompt)
        garbage_collection.resume()
        return await ChatShutdown(terminal, tty).run(first)
