"""One registry for every interface: each listed command has a handler, is documented, and is completed."""

import re
from pathlib import Path

import pytest
from prompt_toolkit.completion import CompleteEvent
from prompt_toolkit.document import Document

from holdfast.cli.chat.input.completion import ChatCompleter
from holdfast.slash.registry import BY_NAME, COMMANDS, find, parse, run
from tests.slash.conftest import TestContext

DOCS = Path(__file__).parents[2] / "docs"
CONTRACT = [
    "new",
    "resume",
    "sessions",
    "fork",
    "branch",
    "title",
    "undo",
    "retry",
    "compact",
    "recall",
    "ps",
    "kill",
    "why",
    "status",
    "model",
    "busy",
    "search",
    "export",
    "help",
    "quit",
]


@pytest.mark.parametrize("name", CONTRACT)
def test_every_command_of_the_contract_is_there(name: str) -> None:
    assert find(name).handler is not None


def test_no_two_commands_have_the_same_name() -> None:
    names = [name for command in COMMANDS for name in (command.name, *command.aliases)]

    assert len(names) == len(set(names)) == len(BY_NAME)


@pytest.mark.parametrize("name", list(BY_NAME))
async def test_every_listed_command_does_something_when_it_is_typed(context: TestContext, name: str) -> None:
    await context.say_text("Hello")

    assert await run(context, f"/{name}")

    assert context.shown or context.is_left or name == "retry"
    assert not any("unknown command" in text for text in context.shown)


@pytest.mark.parametrize("name", list(BY_NAME))
async def test_every_command_works_before_the_first_message(context: TestContext, name: str) -> None:
    assert await run(context, f"/{name}")

    assert context.shown or context.is_left


def test_every_command_is_documented_with_its_usage_and_no_other_is() -> None:
    text = (DOCS / "chat.md").read_text()
    documented = re.findall(r"^\| `/([\w-]+)([^`]*)`", text, re.MULTILINE)

    assert {(name, usage.strip()) for name, usage in documented} == {
        (command.name, command.usage.replace("|", "\\|")) for command in COMMANDS
    }
    for command in COMMANDS:
        for alias in command.aliases:
            assert f"`/{alias}`" in text


async def test_every_command_is_completed(context: TestContext) -> None:
    completer = ChatCompleter(context.stage.database, context.workdir, context.settings.home)
    for name in BY_NAME:
        document = Document(f"/{name[:2]}")
        offered = [one.text async for one in completer.get_completions_async(document, CompleteEvent())]
        assert f"/{name}" in offered


@pytest.mark.parametrize(
    ("line", "command"),
    [
        ("/help", ("help", "")),
        ("  /Title  My  plan ", ("title", "My  plan")),
        ("/?", ("?", "")),
        ("/export md\nfile", ("export", "md\nfile")),
        ("/etc/hosts", None),
        ("/ help", None),
        ("help", None),
        ("say /help", None),
        ("", None),
        ("/", None),
        ("//x", None),
    ],
)
def test_a_command_is_a_slash_and_a_word(line: str, command: tuple[str, str] | None) -> None:
    assert parse(line) == command


@pytest.mark.parametrize(
    ("typed", "near"), [("resum", "/resume"), ("sesions", "/sessions"), ("s", "/sessions"), ("HELPP", "/help")]
)
async def test_an_unknown_command_suggests_the_nearest_names(context: TestContext, typed: str, near: str) -> None:
    await run(context, f"/{typed}")

    assert context.last.startswith(f"! unknown command /{typed.lower()}")
    assert near in context.last


async def test_a_command_without_similar_names_suggests_help(context: TestContext) -> None:
    await run(context, "/zzzzqqq")

    assert "/help lists all commands" in context.last


async def test_plain_text_is_not_a_command(context: TestContext) -> None:
    assert not await run(context, "Hello")
    assert context.shown == []


async def test_help_names_every_command_and_explains_one(context: TestContext) -> None:
    await run(context, "/help")
    lines = context.last.partition("\n\n")[0].splitlines()
    assert [line.split()[0] for line in lines] == [f"/{command.name}" for command in COMMANDS]
    assert max(map(len, lines)) <= 125

    await run(context, "/help /branch")
    assert context.last.startswith("/fork [SEQ] (also /branch): ")
