"""Where the commands of a session run, as a user sees it."""

from pathlib import Path

import pytest

from tests.cli.conftest import ENVIRONMENT, Holdfast

pytestmark = pytest.mark.process
TOOLS = {**ENVIRONMENT, "HOLDFAST_MODEL": "scripted:tools"}


def command(text: str) -> str:
    return f'use tool terminal {{"command": "{text}"}}'


def test_the_backend_of_a_session_is_chosen_once_and_explained(holdfast: Holdfast, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    workdir = tmp_path / "project"
    workdir.mkdir()

    first = holdfast.process(
        *("run", command(f"touch {outside} /srv/holdfast-test inside"), "--terminal", "bubblewrap", "--json"),
        env=TOOLS,
        cwd=workdir,
    ).json
    again = holdfast.process(
        "run", command("touch /srv/holdfast-test"), "--session", first["session_id"], env=TOOLS, cwd=workdir
    )

    assert (workdir / "inside").exists()
    assert not outside.exists()
    assert "Read-only" in first["text"]
    assert "Read-only" in again.out
    assert holdfast("why", first["session_id"], "--json").json["terminal"] == "bubblewrap"


def test_a_chat_of_the_user_runs_on_this_machine(holdfast: Holdfast, tmp_path: Path) -> None:
    outside = tmp_path / "outside"

    ran = holdfast.process("run", command(f"touch {outside}"), "--json", env=TOOLS).json

    assert outside.exists()
    assert holdfast("why", ran["session_id"], "--json").json["terminal"] == "local"


def test_settings_that_would_open_a_container_to_the_machine_are_refused(holdfast: Holdfast, home: Path) -> None:
    home.mkdir(exist_ok=True)
    (home / "config.toml").write_text('[terminal.container]\nimage = "x"\nextra_args = ["--privileged"]\n')

    ran = holdfast.process("run", "hello", env=TOOLS)

    assert ran.code == 2, ran.err
    assert "--privileged is not allowed" in ran.err


@pytest.mark.parametrize(
    ("words", "missing"),
    [
        (["run", "hello", "--terminal", "container"], "[terminal.container] image"),
        (["chat", "--terminal", "ssh"], "[terminal.ssh] host"),
        (["cron", "add", "0 8 * * *", "hello", "--terminal", "ssh"], "[terminal.ssh] host"),
    ],
)
def test_a_backend_that_is_not_configured_is_refused_before_anything_is_saved(
    holdfast: Holdfast, words: list[str], missing: str
) -> None:
    ran = holdfast(*words)

    assert (ran.code, ran.out) == (2, "")
    assert f"cannot be used: {missing} is not set" in ran.err
    assert holdfast("sessions", "list", "--json").json["sessions"] == []


def test_a_schedule_keeps_its_backend(holdfast: Holdfast) -> None:
    added = holdfast("cron", "add", "0 8 * * *", "hello", "--terminal", "bubblewrap", "--json").json

    assert added["terminal"] == "bubblewrap"
    assert holdfast("cron", "list", "--json").json["schedules"][0]["terminal"] == "bubblewrap"
