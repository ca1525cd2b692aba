"""install.sh, run as a user would: against the wheel, with each method, and in a root with the layout of Termux."""

import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from tests.packaging.termux import HOME, PREFIX, WHEELS, Termux
from tests.packaging.wheelhouse import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.timeout(180)]
SCRIPT = ROOT / "install.sh"


@pytest.fixture
def programs(user):
    """Puts programs of this environment on the user's PATH."""
    folder = user.home / "programs"
    folder.mkdir()
    user.env["PATH"] = f"{folder}:/usr/bin:/bin"

    def add(*names: str) -> None:
        for name in names:
            (folder / name).symlink_to(Path(sys.executable).with_name(name))

    (folder / "python3").symlink_to(sys.executable)
    return add


@pytest.mark.parametrize("shell", ["sh", "dash", "bash"])
def test_every_shell_parses_the_script(shell):
    subprocess.run([shell, "-n", SCRIPT], check=True)


def test_shellcheck_finds_nothing():
    subprocess.run(["shellcheck", "--shell=sh", SCRIPT], check=True)


# pip takes long; the test of Termux uses a virtual environment, too.
@pytest.mark.parametrize("method", ["pipx", "uv", pytest.param("venv", marks=pytest.mark.soak)])
def test_each_method_installs_the_wheel_repeatedly_and_removes_it(user, wheels, programs, method):
    programs(*([] if method == "venv" else [method]))
    options = ("--from", wheels.own, "--extras", "none", "--python", sys.executable)
    program = user.home / ".local" / "bin" / "holdfast"

    for _ in range(2):
        said = user.run("sh", SCRIPT, *options).stdout
        assert f"with {method}" in said, "the first available one is chosen"
        assert f"as {program}" in said
        assert "is not in PATH" in said
    reply = user.run(program, "run", "--model", "scripted:echo", "hello").stdout
    assert "hello" in reply

    assert "still in" in user.run("sh", SCRIPT, "--uninstall").stdout
    assert not program.is_symlink()
    assert (user.home / ".holdfast" / "holdfast.db").exists()


def test_a_file_of_someone_else_is_not_replaced(user, wheels, programs):
    program = user.home / ".local" / "bin" / "holdfast"
    program.parent.mkdir(parents=True)
    program.write_text("mine")

    done = user.run("sh", SCRIPT, "--method", "venv", "--from", wheels.own, "--extras", "none", check=False)
    assert done.returncode == 1 and "remove it first" in done.stderr
    assert program.read_text() == "mine"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--python", "/bin/false"], "is not Python 3.11 or newer"),
        (["--method", "brew"], "use pipx, uv or venv"),
        (["--method", "venv", "--from", "/nowhere/h.whl"], "does not exist"),
        (["--colour"], "unknown option"),
        (["--from"], "needs a value"),
        (["--method", "venv", "--uninstall"], "nothing to remove"),
    ],
)
def test_a_wrong_option_is_named_and_nothing_is_installed(user, programs, options, message):
    done = user.run("sh", SCRIPT, *options, check=False)

    assert done.returncode == 1
    assert message in done.stderr
    assert not (user.home / ".local").exists()


def test_an_old_python_is_refused(user):
    folder = user.home / "programs"
    folder.mkdir()
    for name in ("sh", "uname", "dirname", "basename"):
        (folder / name).symlink_to(shutil.which(name))

    done = user.run("/bin/sh", SCRIPT, check=False, PATH=str(folder))
    assert done.returncode == 1
    assert "needs Python 3.11 or newer" in done.stderr


def test_termux_gets_its_packages_and_is_told_what_is_missing(tmp_path, wheels):
    termux = Termux(tmp_path, wheels.folder)
    shutil.copy(SCRIPT, termux.path(HOME / "install.sh"))
    sh, holdfast = PREFIX / "bin" / "sh", PREFIX / "bin" / "holdfast"
    assert termux.run(sh, "-c", "ls /bin /usr/bin /tmp").returncode != 0, "the layout is that of Termux"
    assert termux.run(sh, "-c", "cat /proc/uptime").returncode != 0

    installed = termux.run(sh, "install.sh", "--from", WHEELS / wheels.own.name)
    assert installed.returncode == 0, installed.stdout + installed.stderr
    assert "python-psutil" in termux.path(PREFIX / "pkg.log").read_text()
    for missing in ("embedded model", "PostgreSQL", "bubblewrap"):
        assert missing in installed.stdout.partition("Not available on Termux")[2]
    assert "no model is set up" in termux.run(holdfast, "run", "hello").stderr

    used = termux.run(
        holdfast, "run", "--model", "scripted:tools", 'use tool terminal {"command": "echo version $BASH_VERSION; pwd"}'
    )
    assert re.search(rf"version \d\S+ {HOME}", used.stdout), used.stdout + used.stderr
    started = termux.run(
        *(holdfast, "run", "--model", "scripted:tools"),
        'use tool terminal {"command": "echo from bash $((6 * 7)); echo done", "background": true}',
    )
    assert started.returncode == 0, started.stdout + started.stderr
    shown = termux.run(sh, "-c", f"{holdfast} ps --all --json; cat .holdfast/processes/*/output-*")
    assert "from bash 42" in shown.stdout, shown.stdout + shown.stderr

    assert termux.run(sh, "install.sh", "--uninstall").returncode == 0
    assert not termux.path(holdfast).is_symlink()
    assert termux.path(HOME / ".holdfast" / "holdfast.db").exists()
