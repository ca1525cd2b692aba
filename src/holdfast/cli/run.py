"""`holdfast run`: one turn, and its reply."""

import sys

import click
import msgspec

from holdfast import config
from holdfast.app import App
from holdfast.assemble import open_engine
from holdfast.cli import errors, face, render, reply, signals
from holdfast.cli.reply import Outcome
from holdfast.cli.spinner import Spinner
from holdfast.engine.engine import Engine
from holdfast.engine.opening import Opening
from holdfast.interop.visible import visible
from holdfast.library import CHANNEL
from holdfast.model.errors import Invalid
from holdfast.providers import choose


@click.command()
@click.argument("prompt")
@click.option("--session", "ref", metavar="REF", help="Continue this session.")
@click.option("--key", metavar="KEY", help="Continue the session of this name of yours, or begin it.")
@click.option("--model", metavar="PROVIDER:NAME", help="The model to ask in this session from now on.")
@click.option("--title", help="The title of a new session.")
@face.json_option
def run(prompt: str, ref: str | None, key: str | None, model: str | None, title: str | None, as_json: bool) -> int:
    """Do one turn and print the reply. PROMPT is the text; `-` reads it from standard input."""
    if ref is not None and key is not None:
        raise click.UsageError("give --session or --key, not both")
    said = sys.stdin.buffer.read().decode("utf-8", "surrogateescape") if prompt == "-" else prompt
    if not said.strip():
        raise Invalid("there is nothing to say: the prompt is empty")
    if model is not None:
        choose.parse(model)
    channel = None if key is None else CHANNEL + key
    opening = Opening(
        ref=ref, channel=channel, source="run", own=True, model=model, title=title, workdir=config.workdir()
    )
    return face.with_app(lambda app: _run(app, opening, said, as_json=as_json))


async def _run(app: App, opening: Opening, said: str, *, as_json: bool) -> int:
    async with open_engine(app.database, app.settings, config.environment(), kind="run") as engine:
        engine.stays = False
        turn = _turn(engine, opening, said, as_json=as_json)
        return await signals.unless_signalled(turn, engine.drain, engine.death)


async def _turn(engine: Engine, opening: Opening, said: str, *, as_json: bool) -> int:
    opened = await engine.open(opening)
    if opening.ref is not None:
        face.tell_others(opening.ref, opened)
    words, notes = (None, None) if as_json else reply.streams()
    async with Spinner("thinking") as spinner:
        items = reply.until_words(engine.say(opened.session.id, said), spinner)
        outcome = await reply.show(items, words=words, notes=notes)
    if as_json:
        await _document(engine, opened.session.id, outcome)
    elif words is None and outcome.text:
        render.out(visible(outcome.text))
    return _status(opened.session.id, outcome, quiet=as_json)


async def _document(engine: Engine, session_id: str, outcome: Outcome) -> None:
    session, _ = await engine.read(session_id)
    ended = outcome.ended
    document: dict[str, object] = {
        "session_id": session_id,
        "turn_id": ended.turn_id,
        "epoch": session.summary.epoch,
        "compacted": outcome.compacted,
        "seq": outcome.seq,
        "text": outcome.text,
        "usage": msgspec.structs.asdict(ended.usage),
    }
    if (problem := reply.complaint(ended)) is not None:
        document["error"] = {"code": ended.code or ended.outcome, "message": problem}
    render.document(document)


def _status(session_id: str, outcome: Outcome, *, quiet: bool) -> int:
    problem = reply.complaint(outcome.ended)
    if problem is None:
        return errors.DONE
    if not quiet:
        face.note(f"holdfast: {problem} (session {session_id})")
    return errors.INTERRUPTED if outcome.ended.outcome == "interrupted" else errors.FAILED
