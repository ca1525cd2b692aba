"""A /proc that hides the programs of other users, as one mounted with `hidepid` does."""

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast.processes.process_dir import Program
from holdfast.processes.procfs import ProcessTable, read_process_table

pytestmark = pytest.mark.process

NOBODY = 65534
HIDING = (
    "mount -t proc -o hidepid={hidepid} proc /proc && exec setpriv --reuid={uid} --regid={uid} --clear-groups"
    ' --inh-caps=+dac_override --ambient-caps=+dac_override "$@"'
)
"""Mounts /proc in a new namespace and runs the program as another user, who can read the Python installation."""


def hidden(hidepid: int, *command: str) -> "subprocess.CompletedProcess[str]":
    script = HIDING.format(hidepid=hidepid, uid=NOBODY)
    return subprocess.run(
        ["unshare", "-m", "sh", "-c", script, "sh", *command],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
        env={**os.environ, "HOME": "/tmp"},
    )


LOOK = """
import os
from holdfast.processes.process_dir import Program
from holdfast.processes.procfs import read_process_table
machine = read_process_table()
print(os.getpid() in machine.by_pid, machine.is_hidden(Program(1, "0")), machine.runs(Program(1, "0")))
"""


@pytest.mark.parametrize("hidepid", [1, 2])
def test_uninspectable_programs_count_as_running(hidepid: int) -> None:
    assert shutil.which("unshare") and shutil.which("setpriv"), "util-linux is installed"
    done = hidden(hidepid, sys.executable, "-c", LOOK)

    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["True", "True", "True"]


def test_an_unused_pid_is_not_hidden() -> None:
    ended = subprocess.Popen(["true"])
    ended.wait()
    machine = read_process_table()

    assert not machine.is_hidden(Program(ended.pid, "1"))
    assert not machine.runs(Program(ended.pid, "1"))


def test_a_hidden_pid_does_not_count_as_ended() -> None:
    assert ProcessTable([], hidden=[17]).runs(Program(17, "1"))


def test_a_turn_starts_a_process_and_ps_lists_it_where_proc_hides_the_programs_of_others(tmp_path: Path) -> None:
    home = tmp_path / "home"
    home.mkdir()
    script = home / "start.json"
    script.write_text(
        '{"steps": [{"call": [{"name": "terminal", "arguments": {"command": "sleep 300", "background": true}}]},'
        ' {"say": "started"}]}'
    )
    (home / "config.toml").write_text(f'model = "scripted:{script}"\n')
    for path in (home, *home.iterdir()):
        path.chmod(0o700 if path.is_dir() else 0o600)
        os.chown(path, NOBODY, NOBODY)
    holdfast = (sys.executable, "-m", "holdfast", "--home", str(home))
    played = hidden(1, *holdfast, "run", "start it")
    listed = hidden(1, *holdfast, "ps", "--json")
    found = json.loads(listed.stdout)["processes"] if listed.returncode == 0 else []
    ended = [hidden(1, *holdfast, "ps", "kill", one["id"]) for one in found]

    assert played.returncode == 0, played.stderr
    assert listed.returncode == 0, listed.stderr
    assert [one["command"] for one in found] == ["sleep 300"]
    assert [one.returncode for one in ended] == [0], ended[0].stderr
