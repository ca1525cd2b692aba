"""`holdfast gateway setup`: asks for the settings of a platform, tries them, and writes them to `config.toml`."""

import asyncio
import json
import shutil
import sys
import termios
import tomllib
from collections.abc import Mapping
from pathlib import Path

import click
import msgspec

from holdfast import config
from holdfast.cli import context, render
from holdfast.clock import SystemClock
from holdfast.gateway import setup as first_contact
from holdfast.gateway.platforms import registry
from holdfast.gateway.port import PLATFORMS, Incoming, PlatformOptions
from holdfast.gateway.recipes import RECIPES, PlatformRecipe, RecipeField, is_given
from holdfast.installation import command_to_add
from holdfast.model.errors import Invalid, Unavailable, Unsupported
from holdfast.model.sanitize import visible
from holdfast.store import atomic_file, durable_file

WAIT_MINUTES = 5.0
NOBODY_YET = (
    "No one is allowed to talk to the agent yet. Start the server with `holdfast serve`, write to the agent, and approve the code "
    "that it answers with: holdfast gateway pair CODE"
)


class PlatformTrial(msgspec.Struct, frozen=True):
    """What the first contact showed: who wrote, and why the test message was not accepted."""

    person: Incoming | None
    refused: str = ""


@click.command()
@click.argument("platform", type=click.Choice(list(RECIPES)))
@click.option("--name", help="Name of the platform in channel keys. [PLATFORM]")
@click.option("--set", "given", metavar="KEY=VALUE", multiple=True, help="Set this instead of asking; repeatable.")
@click.option(
    "--wait",
    "minutes",
    type=click.FloatRange(0),
    default=WAIT_MINUTES,
    show_default=True,
    help="Minutes to wait for your first message; 0 to skip it.",
)
def setup(*, platform: str, name: str | None, given: tuple[str, ...], minutes: float) -> None:
    """Set up PLATFORM: ask, check the connection, find your id, write the settings, send a test message."""
    recipe, name = RECIPES[platform], name or platform
    settings = context.settings()
    if name in settings.gateway.platforms:
        raise Invalid(
            f"[gateway.{name}] exists in {settings.home / config.FILE}; edit it there, or choose another --name"
        )
    _require_library(platform)
    values = _parse_given(given, recipe)
    _explain(recipe)
    table, trial = _connect(recipe, settings.home / PLATFORMS / name, values, minutes * 60)
    allowed = trial.person is not None and _confirm(trial.person)
    if trial.person is not None and allowed:
        table["allow"] = [trial.person.person]
    if platform != name:
        table = {"kind": platform, **table}
    _write(settings.home, name, table)
    render.print_text(f"Wrote [gateway.{name}] to {settings.home / config.FILE}.")
    if trial.refused:
        context.note(f"warning: the test message was not accepted: {trial.refused}")
    _print_wrapped("Start the server: holdfast serve" if allowed else NOBODY_YET)


def _require_library(platform: str) -> None:
    """Raise Unsupported, with the command for this installation, if the platform's client library is missing."""
    if not registry.is_installed(platform):
        raise Unsupported(f"{platform} needs a client library; run: {command_to_add(registry.KINDS[platform])}")


def _parse_given(given: tuple[str, ...], recipe: PlatformRecipe) -> dict[str, object]:
    values: dict[str, object] = {}
    for one in given:
        key, sign, value = one.partition("=")
        if not sign or key not in recipe.settings:
            raise click.UsageError(f"--set {key}: expected one of {', '.join(sorted(recipe.settings))}, as KEY=VALUE")
        values[key] = _parse_value(key, value)
    return values


def _parse_value(key: str, text: str) -> object:
    """A number, `true` or `false`, a list such as `["a", "b"]`, or else the text itself: many ids consist of digits."""
    if text.isdecimal() and key.endswith(("_port", "_mb", "_seconds")):
        return int(text)
    if text not in ("true", "false") and not text.startswith("["):
        return text
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError as e:
        raise click.UsageError(f'--set {key}: expected a list such as ["a", "b"]') from e


def _explain(recipe: PlatformRecipe) -> None:
    render.print_text(render.bold(f"Set up {recipe.title}"))
    for number, step in enumerate(recipe.steps, 1):
        _print_wrapped(f"{number}. {step}", "   ")


def _print_wrapped(text: str, indent: str = "") -> None:
    """Print a paragraph; a terminal gets lines that end between words."""
    if sys.stdout.isatty():
        width = shutil.get_terminal_size().columns
        text = click.wrap_text(text, width, subsequent_indent=indent)
    render.print_text(text)


def _connect(
    recipe: PlatformRecipe, folder: Path, given: Mapping[str, object], seconds: float
) -> tuple[dict[str, object], PlatformTrial]:
    """Ask for what is missing until the platform accepts it. Returns the settings and what the first contact showed."""
    wanted = [field for field in recipe.fields if not is_given(field.name, given)]
    typed: dict[str, str] = {}
    while True:
        typed = {field.name: _ask(field, typed.get(field.name, "")) for field in wanted}
        table: dict[str, object] = {key: value for key, value in {**given, **typed}.items() if value}
        try:
            return table, asyncio.run(_try(recipe, PlatformOptions(folder.name, dict(table), folder), seconds))
        except (Invalid, Unavailable) as e:
            if not wanted or not sys.stdin.isatty():
                raise
            context.note(f"holdfast: {e}")
            _print_wrapped("Try again. Enter keeps an answer, Ctrl-C cancels; nothing is written yet.")


def _ask(field: RecipeField, before: str) -> str:
    """The answer to a question; without one, the answer `before`, if there was one."""
    if not sys.stdin.isatty():
        raise Unsupported(f"{field.name} is missing; run this in a terminal, or give it with --set {field.name}=…")
    default = before or ("" if field.optional else None)
    answer: str = click.prompt(field.question, hide_input=field.secret, default=default, show_default=False, err=True)
    return answer.strip()


async def _try(recipe: PlatformRecipe, options: PlatformOptions, seconds: float) -> PlatformTrial:
    """Connect, wait for the person, and send a test message. Raises Invalid or Unavailable with the platform's answer."""
    async with (
        registry.connect(recipe.kind)(options, SystemClock()) as platform,
        first_contact.connected(platform, _note_ignored) as contact,
    ):
        render.print_text(f"Connected to {recipe.title}.")
        if not seconds:
            return PlatformTrial(None)
        minutes = f"{seconds / 60:g} minute{'' if seconds == 60 else 's'}"
        _print_wrapped(f"{recipe.greet} Waiting up to {minutes} (Ctrl-C to cancel).")
        person = await contact.wait_for_person(seconds)
        if person is None:
            return PlatformTrial(None)
        return PlatformTrial(person, await first_contact.send_test_message(platform, person))


def _note_ignored(message: Incoming) -> None:
    """Say why the message of a person is not the one that setup waits for."""
    context.note(f"warning: ignored a message of {visible(message.person)}: {visible(message.ignored)}")


def _confirm(person: Incoming) -> bool:
    """Whether the person may talk to the agent. Only a person at the terminal can say so: anyone can find a bot."""
    named = person.name and person.name != person.person
    shown = visible(f"{person.name} (id {person.person})" if named else person.person)
    if sys.stdin.isatty():
        termios.tcflush(sys.stdin.fileno(), termios.TCIFLUSH)  # keys pressed before the question do not answer it
        return click.confirm(f"{shown} wrote. Is that you? They may then talk to the agent", default=True, err=True)
    render.print_text(f"{shown} wrote. Add the id to `allow` to let them talk to the agent.")
    return False


def _write(home: Path, name: str, table: Mapping[str, object]) -> None:
    """Append the table to `config.toml`, which only its owner can read then."""
    file, new = home / config.FILE, home / f"{config.FILE}.new"
    before = file.read_text("utf-8-sig") if file.exists() else ""
    lines = [f"{key} = {json.dumps(value, ensure_ascii=False)}" for key, value in table.items()]
    durable_file.make_private_folders(home)
    try:
        with atomic_file.new_file(new, replace=True) as stream:
            stream.write(
                "\n".join([*before.rstrip().splitlines(), "", f"[gateway.{_toml_key(name)}]", *lines, ""]).lstrip()
            )
        new.chmod(0o600)
        config.check(new)
        durable_file.rename(new, file)
    finally:
        new.unlink(missing_ok=True)


def _toml_key(name: str) -> str:
    return name if name.replace("-", "").replace("_", "").isalnum() and name.isascii() else json.dumps(name)
