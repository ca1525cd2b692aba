"""The command line as a user runs it: in this process for speed, or as a separate process."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from holdfast import logs
from holdfast.cli.main import main
from tests.cli.seed import Seed

ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}

TIMEOUT = 50
"""Seconds after which a process counts as hanging: less than the limit of a test, so that its stack is printed."""


@dataclass(frozen=True)
class Ran:
    code: int
    out: str
    err: str

    @property
    def json(self) -> Any:
        """The JSON document that was printed."""
        return json.loads(self.out)


class Holdfast:
    """Runs commands on one home."""

    def __init__(self, home: Path, capsys: pytest.CaptureFixture[str]) -> None:
        self.home = home
        self._capsys = capsys

    def __call__(self, *args: str) -> Ran:
        self._capsys.readouterr()
        code = main(["--home", str(self.home), *args])
        said = self._capsys.readouterr()
        return Ran(code, said.out, said.err)

    def command(self, *args: str) -> list[str]:
        return [sys.executable, "-m", "holdfast", "--home", str(self.home), *args]

    def process(self, *args: str, before: Sequence[str] = (), **options: Any) -> Ran:
        """The same as a separate process, as a shell would start it; `before` is a command that starts it."""
        pipe = subprocess.PIPE
        options = {"stdin": subprocess.DEVNULL, "stdout": pipe, "stderr": pipe, "env": ENVIRONMENT, **options}
        options["env"] = {**options["env"], "PYTHONFAULTHANDLER": "1"}
        given = options.pop("input", None)
        if given is not None:
            options["stdin"] = pipe
        with subprocess.Popen([*before, *self.command(*args)], **options) as started:
            try:
                out, err = started.communicate(given, timeout=TIMEOUT)
            except subprocess.TimeoutExpired:
                started.send_signal(signal.SIGABRT)  # the process prints the stack of each thread
                out, err = started.communicate()
                pytest.fail(f"holdfast {' '.join(args)} did not end within {TIMEOUT} s:\n{(err or b'').decode()}")
        return Ran(started.returncode, (out or b"").decode(), (err or b"").decode())

    def kill_once_there(self, path: Path, *args: str, **options: Any) -> None:
        """Start a separate process, and kill it with its children once `path` exists."""
        started = subprocess.Popen(self.command(*args), start_new_session=True, **options)
        try:
            wait_for(path)
        finally:
            os.killpg(started.pid, signal.SIGKILL)
            started.wait()


def wait_for(path: Path) -> None:
    for _ in range(600):
        if path.exists():
            return
        time.sleep(0.05)
    pytest.fail(f"{path} was never created")


@pytest.fixture
def home(tmp_path: Path) -> Path:
    return tmp_path / "home"


@pytest.fixture
def holdfast(home: Path, capsys: pytest.CaptureFixture[str]) -> Iterator[Holdfast]:
    yield Holdfast(home, capsys)
    logs.remove_handlers()


@pytest.fixture
def seed(home: Path) -> Seed:
    return Seed(home / "holdfast.db")


@pytest.fixture
def scripted(tmp_path: Path) -> Callable[..., str]:
    """A model that plays these steps."""

    def write(*steps: dict[str, Any], **script: Any) -> str:
        path = tmp_path / "script.json"
        path.write_text(json.dumps({"steps": steps, **script}))
        return f"scripted:{path}"

    return write
