"""The command line: the command that is left out, similar names, help, and completion by a shell."""

import subprocess
import sys
from collections.abc import Iterator

import click
import pytest

from holdfast.cli.main import COMMANDS, cli
from holdfast.cli.parsing import arguments
from holdfast.cli.parsing.session_ref import SessionRef
from tests.cli.conftest import ENVIRONMENT, Holdfast
from tests.cli.seed import Seed


@pytest.mark.parametrize(
    ("line", "meant"),
    [
        (["fix the bug"], ["chat", "fix the bug"]),
        (["--continue", "fix the bug"], ["chat", "--continue", "fix the bug"]),
        (["-p", "fix"], ["run", "fix"]),
        (["fix the bug", "--print", "--json"], ["run", "fix the bug", "--json"]),
        (["-p", "chat"], ["run", "chat"]),
        (["--home", "/h", "-p", "x"], ["--home", "/h", "run", "x"]),
        (["sessions", "show", "-p"], ["sessions", "show", "-p"]),
        (["run", "--", "-p"], ["run", "--", "-p"]),
        (["chta"], ["chta"]),
        (["--help"], ["--help"]),
        (["run", "x", "--home"], ["run", "x", "--home"]),
        ([], []),
    ],
)
def test_the_command_that_is_left_out_is_added(line: list[str], meant: list[str]) -> None:
    assert arguments.normalize(line, COMMANDS) == meant


@pytest.mark.parametrize(
    ("line", "message"),
    [
        ("sesions list", "No such command 'sesions'; did you mean 'sessions'"),
        ("sessions shwo x", "No such command 'shwo'; did you mean 'show'? See 'holdfast sessions --help'"),
        ("hello", "No such command 'hello'; to send it as a prompt: holdfast chat 'hello'"),
        ("cron xyzzy", "No such command 'xyzzy'; see 'holdfast cron --help'"),
    ],
)
def test_an_unknown_command_suggests_what_may_be_meant(holdfast: Holdfast, line: str, message: str) -> None:
    ran = holdfast(*line.split())

    assert ran.code == 2
    assert message in ran.err


@pytest.mark.parametrize(
    "words",
    [
        ["--home", "", "sessions", "list"],
        ["serve", "--host", ""],
        ["broker", "--host", ""],
        ["run", "hello", "--key", ""],
        ["batch", ""],
        ["backup", ""],
        ["sessions", "import", ""],
        ["sessions", "export", "x", "--out", ""],
        ["skills", "add", ""],
    ],
)
def test_an_empty_value_of_a_script_is_refused(holdfast: Holdfast, words: list[str]) -> None:
    ran = holdfast(*words)

    assert ran.code == 2
    assert " is empty; see 'holdfast" in ran.err


def test_a_number_that_is_none_is_called_so(holdfast: Holdfast) -> None:
    assert "'x' is not an integer; see" in holdfast("sessions", "list", "--limit", "x").err


def test_a_group_without_a_command_prints_its_help(holdfast: Holdfast) -> None:
    ran = holdfast("sessions")

    assert (ran.code, ran.out) == (2, "")
    assert "\nCommands:\n  list " in ran.err


def groups(group: click.Group, ctx: click.Context) -> Iterator[str]:
    """The help of the group and of the groups in it."""
    yield group.get_help(ctx)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from groups(command, click.Context(command, info_name=name, parent=ctx))


def test_no_summary_is_cut_in_the_help() -> None:
    pages = list(groups(cli, click.Context(cli, info_name="holdfast")))

    assert len(pages) > 5
    assert not [page for page in pages if "..." in page.partition("Commands:")[2]]


@pytest.mark.process  # click asks bash for its version
@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_completion_script_of_each_shell_is_printed(holdfast: Holdfast, shell: str) -> None:
    ran = holdfast("completion", shell)

    assert ran.code == 0
    assert "_HOLDFAST_COMPLETE=" in ran.out


def test_every_session_reference_is_completed() -> None:
    def commands(group: click.Group, ctx: click.Context) -> Iterator[click.Command]:
        for name in group.list_commands(ctx):
            command = group.get_command(ctx, name)
            assert command is not None
            yield command
            if isinstance(command, click.Group):
                yield from commands(command, click.Context(command, info_name=name, parent=ctx))

    plain = [
        command.name
        for command in commands(cli, click.Context(cli))
        for parameter in command.params
        if "REF" in parameter.make_metavar(click.Context(command)) and not isinstance(parameter.type, SessionRef)
    ]
    assert plain == []


@pytest.mark.process
@pytest.mark.parametrize("words", ["sessions show hf-", "why hf-", "run x --session hf-"])
def test_a_shell_completes_session_references(holdfast: Holdfast, seed: Seed, words: str) -> None:
    holdfast.home.mkdir()
    session_id = seed.session("About the sea", turns=1)
    line = f"holdfast --home {holdfast.home} {words}"
    environment = {**ENVIRONMENT, "_HOLDFAST_COMPLETE": "zsh_complete", "COMP_WORDS": line}
    environment["COMP_CWORD"] = str(len(line.split()) - 1)

    ran = subprocess.run(
        [sys.executable, "-m", "holdfast"], env=environment, capture_output=True, text=True, check=False
    )

    assert ran.stdout.split("\n")[:2] == ["plain", session_id], ran.stderr
    assert "About the sea" in ran.stdout


@pytest.mark.process
def test_completion_without_a_store_offers_nothing_and_creates_nothing(holdfast: Holdfast) -> None:
    line = f"holdfast --home {holdfast.home} why hf-"
    environment = {**ENVIRONMENT, "_HOLDFAST_COMPLETE": "bash_complete", "COMP_WORDS": line, "COMP_CWORD": "4"}

    ran = subprocess.run(
        [sys.executable, "-m", "holdfast"], env=environment, capture_output=True, text=True, check=False
    )

    assert (ran.stdout.strip(), ran.stderr) == ("", "")
    assert not (holdfast.home / "holdfast.db").exists()
