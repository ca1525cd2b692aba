"""The user's own commands: prompts in files."""

from pathlib import Path

import pytest

from holdfast.model.errors import Invalid
from holdfast.slash import custom, registry
from holdfast.slash.custom import PROJECT_FOLDER, CustomCommand, parse
from tests.slash.conftest import TestContext


def write(folder: Path, name: str, content: str | bytes) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    (folder / name).write_bytes(content if isinstance(content, bytes) else content.encode())


def test_a_header_describes_the_command_and_arguments_replace_the_placeholder() -> None:
    command = parse("review", '---\ndescription: "Review a file"\nargument-hint: FILE\n---\n\nReview $ARGUMENTS now.\n')

    assert command == CustomCommand("review", "Review $ARGUMENTS now.", "Review a file", "FILE")
    assert command.expand("a.py") == "Review a.py now."
    assert parse("x", "Only text").expand("more") == "Only text\n\nmore"
    assert parse("x", "Only text").help == "Only text"


@pytest.mark.parametrize(
    ("content", "problem"),
    [
        ("---\ndescription: x\n", "has a header without an end"),
        ("---\nno field\n---\nx", "line 2 is not `name: value`"),
        ("---\ncolour: red\n---\nx", "unknown field 'colour'"),
        (b"caf\xe9", "it is not UTF-8 text"),
        (b"x" * (custom.MAX_BYTES + 1), "it has 262,145 bytes; at most 262,144 are read"),
    ],
)
async def test_a_bad_file_is_listed_with_its_problem_and_never_sent(
    context: TestContext, content: str | bytes, problem: str
) -> None:
    write(context.settings.home / "commands", "bad.md", content)

    await registry.run(context, "/help")
    assert problem in context.last
    await registry.run(context, "/bad")
    assert context.last.startswith("! ") and problem in context.last
    assert context.session_id is None


async def test_a_command_of_the_directory_overrides_one_of_the_home_and_neither_a_built_in_one(
    context: TestContext, tmp_path: Path
) -> None:
    context.workdir = tmp_path / "project"
    write(context.settings.home / "commands", "greet.md", "from home")
    write(context.workdir / PROJECT_FOLDER, "Greet.md", "Hello $ARGUMENTS")
    write(context.workdir / PROJECT_FOLDER, "status.md", "never sent")
    write(context.workdir / PROJECT_FOLDER, "no command.md", "never listed")

    await registry.run(context, "/greet world")
    await context.engine.settled()
    await registry.run(context, "/history")
    assert "Hello world" in context.last
    await registry.run(context, "/status")
    assert "never sent" not in context.last
    await registry.run(context, "/help greet")
    assert context.last == "/greet: Hello $ARGUMENTS"
    await registry.run(context, "/gret")
    assert "did you mean /greet" in context.last


@pytest.mark.parametrize("target", ["../../../secret.txt", "../../notes.txt", "/dev/zero", "x" * 300])
async def test_a_command_of_a_project_is_never_a_link_to_something_else(
    context: TestContext, tmp_path: Path, target: str
) -> None:
    context.workdir = tmp_path / "project"
    folder = context.workdir / PROJECT_FOLDER
    folder.mkdir(parents=True)
    (context.workdir / "notes.txt").write_text("password")
    (tmp_path / "secret.txt").write_text("password")
    (folder / "deploy.md").symlink_to(target)

    await registry.run(context, "/help")
    assert "deploy.md is not used: " in context.last and "password" not in context.last
    await registry.run(context, "/deploy")
    assert context.last.startswith("! ") and context.session_id is None


async def test_a_command_of_a_project_can_be_a_link_to_a_prompt_in_the_project(
    context: TestContext, tmp_path: Path
) -> None:
    context.workdir = tmp_path / "project"
    write(context.workdir / "prompts", "shared.md", "Hello from the project")
    (context.workdir / PROJECT_FOLDER).mkdir(parents=True)
    (context.workdir / PROJECT_FOLDER / "greet.md").symlink_to("../../prompts/shared.md")

    await registry.run(context, "/help greet")
    assert context.last == "/greet: Hello from the project"


def test_an_empty_command_is_refused() -> None:
    with pytest.raises(Invalid, match="has no text"):
        parse("x", "").expand("")
