"""A test that ignores its time limit is ended and named."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.process

ROOT = Path(__file__).parents[1]
BEGINNING = """
import ctypes
import pytest
from tests import conftest

conftest.GRACE_SECONDS = 1.0


def be_deaf():
    library, mutex = ctypes.PyDLL(None), ctypes.create_string_buffer(64)
    library.pthread_mutex_lock(mutex)
    library.pthread_mutex_lock(mutex)  # Python is kept all the while, so that no handler of a signal gets to run

"""


@pytest.mark.parametrize(
    "test",
    [
        "def test_deaf():\n    be_deaf()\n",
        "@pytest.fixture\ndef late():\n    yield\n    be_deaf()\n\ndef test_deaf(late):\n    assert False\n",
    ],
    ids=["in the test", "in cleaning up after a failure"],
)
def test_a_test_that_ignores_its_time_limit_is_ended_and_named(tmp_path: Path, test: str) -> None:
    path = tmp_path / "test_it.py"
    path.write_text(BEGINNING + test)
    command = [sys.executable, "-m", "pytest", "-n", "1", "-c", "pyproject.toml", "-p", "tests.conftest"]
    options = ["-o", "timeout=1", "-p", "no:cacheprovider", "--basetemp", str(tmp_path / "base"), str(path)]

    done = subprocess.run([*command, *options], cwd=ROOT, capture_output=True, text=True, check=False, timeout=50)

    assert done.returncode == 1, done.stdout + done.stderr
    assert re.search(r"crashed while running '.*test_deaf'", done.stdout)
    assert "in be_deaf" in done.stdout + done.stderr, "its stack is printed"
