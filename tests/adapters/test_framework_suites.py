"""The suites of the frameworks, unmodified, with our session layers in the place of theirs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.programs import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.clients, pytest.mark.timeout(300)]

SUITES = ROOT / "build" / "suites"
PROGRAMS = Path(__file__).parent / "programs"
OF_SQLITE = (
    "close_closes_worker_thread_connections",
    "reaps_connections",
    "closes_retired_connections",
    "keeps_connections",
    "closed_rejects_empty_add_items",  # its RuntimeError names SQLiteSession
    "corrupt",  # they write into SQLiteSession's tables; a damaged log of ours is an error
    "file_lock_is_shared",
    "releases_write_lock",
    "failed_clear_session",
    "rollback_failure",
    "quarantined_connection",
    "post_commit_cancellation",
)
"""Tests of SQLiteSession's own connections, locks and tables."""


def run(suite: Path, plugin: str, words: list[str], home: Path) -> str:
    """The output of the suite, run in its own directory with our plugin, after it has passed."""
    assert suite.is_dir(), "scripts/client-packages downloads it"
    options = ["-p", plugin, "-p", "no:randomly", "-p", "no:langsmith_plugin", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *words],
        cwd=suite,
        env={"PATH": os.environ["PATH"], "HOLDFAST_HOME": str(home), "PYTHONPATH": f"{PROGRAMS}:{SUITES / 'plugins'}"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return done.stdout


def test_the_session_tests_of_openai_agents_pass(tmp_path: Path) -> None:
    files = ["tests/memory/test_session.py", "tests/memory/test_session_limit.py"]
    chosen = ["-k", " and ".join(f"not {name}" for name in OF_SQLITE)]
    output = run(SUITES / "openai_agents-0.24.0", "openai_suite_plugin", [*chosen, *files], tmp_path)

    assert re.search(r"\b53 passed", output), output[-500:]


def test_the_store_tests_of_langgraph_pass(tmp_path: Path) -> None:
    words = ["-p", "pytest_mock", "-o", "asyncio_mode=auto", "tests/test_store.py"]
    output = run(SUITES / "langgraph_checkpoint-4.3.2", "langgraph_suite_plugin", words, tmp_path)

    assert re.search(r"\b117 passed", output), output[-500:]
