"""Where the tools of a session work."""

import json
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.config import read
from holdfast.model.session import Session, SessionSummary
from holdfast.wiring.workdir import session_workdir
from tests.api.serving import Server, ask, text

MARK = 'Where?\nuse tool terminal {"command": "touch here"}'


@pytest.fixture
def home(tmp_path: Path) -> Path:
    home = tmp_path / "home"
    home.mkdir(mode=0o700)
    (home / "config.toml").write_text('model = "scripted:tools"\n')
    return home


def session(channel: str | None = None) -> Session:
    return Session("hf-1", 1, "", None, 0, SessionSummary(channel=channel))


def test_a_session_without_a_directory_has_its_own_in_the_home(home):
    assert session_workdir(session(), None, read({}, home)) == home / "work" / "hf-1"


def test_the_sessions_of_a_channel_share_one_and_no_two_channels_do(home):
    settings = read({}, home)
    first, again, other = (session_workdir(session(name), None, settings) for name in ("a:1", "a:1", "a_1"))

    assert first == again
    assert first != other
    assert {path.parent for path in (first, other)} == {home / "work"}


@pytest.mark.parametrize("channel", ["x:../../..", "x:/etc", "x:..", ".", "x:" + "y" * 500, "x:\n\0"])
def test_no_channel_name_escapes_the_work_directory(home, channel):
    found = session_workdir(session(channel), None, read({}, home))

    assert found.resolve().parent == (home / "work").resolve()
    assert len(found.name) < 100


def test_a_recorded_directory_is_kept_and_a_configured_one_precedes_the_own(home, tmp_path):
    (tmp_path / "recorded").mkdir()
    (tmp_path / "set").mkdir()
    settings = read({"HOLDFAST_WORKDIR": str(tmp_path / "set")}, home)

    assert session_workdir(session(), str(tmp_path / "recorded"), settings) == tmp_path / "recorded"
    assert session_workdir(session(), None, settings) == tmp_path / "set"
    assert session_workdir(session(), str(tmp_path / "gone"), settings) == tmp_path / "set"


def test_the_home_itself_is_never_the_working_directory(home):
    (home / "logs").mkdir()
    (home / "work" / "mine").mkdir(parents=True)
    settings = read({}, home)

    assert session_workdir(session(), str(home), settings) == home / "work" / "hf-1"
    assert session_workdir(session(), str(home / "logs"), settings) == home / "work" / "hf-1"
    assert session_workdir(session(), str(home / "work" / "mine"), settings) == home / "work" / "mine"


def holdfast(home: Path, cwd: Path, *args: str) -> str:
    command = [sys.executable, "-m", "holdfast", "--home", str(home), *args]
    return subprocess.run(command, cwd=cwd, check=True, capture_output=True, text=True).stdout


@pytest.mark.process
def test_a_run_works_where_it_was_started(home, tmp_path):
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()

    holdfast(home, elsewhere, "run", MARK)

    assert (elsewhere / "here").exists()


@pytest.mark.process
def test_a_batch_and_a_schedule_work_in_their_own_directories(home, tmp_path):
    (tmp_path / "prompts.jsonl").write_text(json.dumps({"id": "a", "prompt": MARK}) + "\n")
    holdfast(home, tmp_path, "batch", "prompts.jsonl")
    holdfast(home, tmp_path, "cron", "add", "0 6 * * *", MARK)
    (schedule,) = json.loads(holdfast(home, tmp_path, "cron", "list", "--json"))["schedules"]
    holdfast(home, tmp_path, "cron", "run", schedule["id"])

    made = list((home / "work").iterdir())
    assert len(made) == 2
    assert all((path / "here").exists() for path in made)
    assert {stat.S_IMODE(path.stat().st_mode) for path in made} == {0o700}


@pytest.mark.process
def test_a_session_of_the_api_works_in_its_own_directory(tmp_path):
    with Server(tmp_path / "home", alone="tools") as server, server.http() as http:
        for _ in range(2):
            text(ask(http, MARK))

    assert len(list((tmp_path / "home" / "work").glob("hf-*/here"))) == 2
    directories = [path for path in (tmp_path / "home").rglob("*") if path.is_dir()]
    assert [path for path in directories if path.stat().st_mode & 0o077] == [], "even in a home that others can enter"
