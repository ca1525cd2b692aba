import re
import subprocess
import sys
import urllib.request
import zipfile

import pytest

from tests.packaging.wheelhouse import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow]


def test_the_wheel_contains_every_file_of_the_package(wheels):
    listed = subprocess.run(
        ["git", "ls-files", "src/holdfast"], cwd=ROOT, capture_output=True, text=True, check=True
    ).stdout.split()
    with zipfile.ZipFile(wheels.own) as archive:
        packed = set(archive.namelist())

    assert {path.removeprefix("src/") for path in listed if (ROOT / path).exists()} - packed == set()
    assert {path for path in packed if not path.startswith("holdfast")} == set()


def test_the_wheel_runs_in_a_clean_environment(user, installed):
    assert re.fullmatch(r"holdfast \d.*\n", user.run(installed, "--version").stdout)
    said = user.run(installed, "run", "--model", "scripted:echo", "Are you there?")
    assert "Are you there?" in said.stdout
    assert "Are you there?" in user.run(installed, "sessions", "list").stdout


def test_the_wheel_serves_the_dashboard_with_its_files(user, installed):
    program = subprocess.Popen(
        [installed, "serve", "--port", "0"], env=user.env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )
    try:
        found = re.search(r"listening on (\S+);", program.stdout.readline())
        page = urllib.request.urlopen(f"{found[1]}/ui/login").read().decode()
        files = re.findall(r'"(/ui/static/[^"]+)"', page)
        sizes = [len(urllib.request.urlopen(found[1] + path).read()) for path in files]
    finally:
        program.terminate()
        _, said = program.communicate()

    assert files
    assert all(sizes)
    assert program.returncode == 0
    assert "no model is set up" in said, "without a key and an embedded model the server says so, and still serves"


@pytest.mark.parametrize("command", [["run", "hello"], ["chat"], []])
def test_a_start_without_any_model_names_the_choices_and_saves_nothing(user, installed, command):
    done = user.run(installed, *command, check=False)

    assert done.returncode == 3
    assert "OPENAI_API_KEY" in done.stderr
    assert "ANTHROPIC_API_KEY" in done.stderr
    assert "-m pip install 'holdfast[local] @ file://" in done.stderr
    assert "holdfast model pull smollm2" in done.stderr
    assert "no model is set up" in user.run(installed, "doctor").stdout
    assert "hello" not in user.run(installed, "sessions", "list", "--all").stdout


def test_pipx_installs_the_wheel(user, wheels):
    user.run(sys.executable, "-m", "pipx", "install", wheels.own)
    program = user.home / ".local" / "bin" / "holdfast"

    assert user.run(program, "--version").stdout.startswith("holdfast ")
    said = user.run(program, "run", "hello", check=False).stderr
    assert "pipx install --force 'holdfast[local] @ file://" in said


def test_uv_installs_the_wheel_as_a_tool(user, wheels):
    user.run(sys.executable, "-m", "uv", "tool", "install", wheels.own)
    program = user.home / ".local" / "bin" / "holdfast"

    assert user.run(program, "--version").stdout.startswith("holdfast ")
    said = user.run(program, "run", "hello", check=False).stderr
    assert "uv tool install --force 'holdfast[local] @ file://" in said


def test_uvx_runs_the_wheel_without_installing_it(user, wheels):
    uvx = (sys.executable, "-m", "uv", "tool", "run", "--from", wheels.own, "holdfast")

    assert user.run(*uvx, "--version").stdout.startswith("holdfast ")
    said = user.run(*uvx, "run", "hello", check=False).stderr
    assert "uvx --from 'holdfast[local] @ file://" in said
