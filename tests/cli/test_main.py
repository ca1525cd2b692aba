"""The command line as a whole: what it loads, what it prints without a command, where options may be."""

import subprocess
import sys
from pathlib import Path

import pytest

import holdfast as package
from tests.cli.conftest import ENVIRONMENT, Holdfast
from tests.cli.seed import Seed

pytestmark = pytest.mark.process

CLIENTS = {"aiohttp", "httpx", "httpx2", "openai", "anthropic", "mcp", "xllamacpp"}
WEB = {"starlette", "uvicorn", "jinja2", "markdown_it", "multipart", "anyio"}
TERMINAL = {"prompt_toolkit", "rich", "wcwidth"}
SELDOM = {"psutil", "psycopg", "zoneinfo", "tomllib", "croniter", "html.entities"}
HEAVY = {
    "--version": {"click", "asyncio", "apsw", "msgspec", "rich", "logging", "pathlib", "typing", "re"},
    "sessions list": {
        *CLIENTS,
        "holdfast.providers",
        *WEB,
        *TERMINAL,
        *SELDOM,
        "shutil",
        "dataclasses",
        "ctypes",
        "holdfast.engine.engine",
    },
    "run --model scripted:echo hello": {*CLIENTS, *WEB, *TERMINAL, *SELDOM, "zipfile"},
}


@pytest.mark.parametrize("line", HEAVY)
def test_a_command_loads_only_what_it_needs(home: Path, line: str) -> None:
    code = "import sys; from holdfast.__main__ import main; main(); print('\\nloaded', *sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code, *line.split()],
        env={**ENVIRONMENT, "HOLDFAST_HOME": str(home)},
        capture_output=True,
        check=True,
    )

    loaded = set(done.stdout.decode().split("\nloaded ")[1].split())
    assert loaded & HEAVY[line] == set()


def test_the_chat_loads_nothing_that_its_first_prompt_does_not_need() -> None:
    code = "import sys, holdfast.cli.chat.command, holdfast.cli.chat.app; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert {*CLIENTS, *WEB, *SELDOM, "rich", "zipfile"} & set(done.stdout.decode().split()) == set()


def test_the_server_loads_the_pages_of_the_dashboard_only_when_one_is_opened() -> None:
    code = "import sys, holdfast.wiring.server; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)

    assert {"jinja2", "markdown_it", "psutil"} & set(done.stdout.decode().split()) == set()


def test_the_version_is_printed_by_option_and_module(holdfast: Holdfast) -> None:
    fast = subprocess.run([sys.executable, "-m", "holdfast", "--version"], capture_output=True, check=True)

    assert fast.stdout.decode() == f"holdfast {package.__version__}\n"
    assert holdfast("--version").out == f"holdfast {package.__version__}\n"


def test_the_home_option_may_follow_the_command(holdfast: Holdfast, seed: Seed, home: Path) -> None:
    session_id = seed.session()

    for args in (("sessions", "list", "--home", str(home)), ("sessions", f"--home={home}", "list")):
        done = subprocess.run(
            [sys.executable, "-m", "holdfast", *args], env=ENVIRONMENT, capture_output=True, check=True
        )
        assert session_id in done.stdout.decode()


def test_the_json_option_may_precede_the_command(holdfast: Holdfast, seed: Seed) -> None:
    seed.session()

    ran = holdfast("--json", "sessions", "list")

    assert ran.code == 0 and ran.out == holdfast("sessions", "list", "--json").out
    assert "No such option '--json'; see 'holdfast chat --help'" in holdfast("--json").err


@pytest.mark.parametrize("before", [(), ("chat",)])
def test_options_without_a_command_are_those_of_the_chat(
    holdfast: Holdfast, seed: Seed, before: tuple[str, ...]
) -> None:
    seed.session()
    ran = holdfast(*before, "--resume", "no such session")

    assert ran.code == 3 and "no session has the id, alias or title" in ran.err
    assert "See 'holdfast chat --help'" in holdfast(*before, "--nonsense").err


def test_every_command_has_help(holdfast: Holdfast) -> None:
    from tests.test_docs import commands

    for words, command in commands():
        ran = holdfast(*words, "--help")
        assert ran.code == 0 and ran.out.startswith("Usage: holdfast")
        assert command.help, f"{words} says what it does"


def test_a_table_in_a_terminal_is_cut_to_its_width(holdfast: Holdfast, seed: Seed) -> None:
    session_id = seed.session(title="ein Titel, der für jedes Terminal zu lang ist, 日本語 " * 3)

    done = subprocess.run(
        ["script", "--quiet", "--return", "--command", " ".join(holdfast.command("sessions", "list")), "/dev/null"],
        env={**ENVIRONMENT, "COLUMNS": "100", "TERM": "xterm"},
        capture_output=True,
        check=True,
    )

    header, *rows = done.stdout.decode().replace("\r", "").splitlines()
    assert header.startswith("\x1b[1mid")
    assert [row.split()[:4] for row in rows] == [[session_id, "waiting", "chat", "4"]]
    assert len(rows[0]) <= 100 and rows[0].endswith("…")
