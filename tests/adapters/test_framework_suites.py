"""The suites of the frameworks, unmodified, with our session layers in the place of theirs."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.programs import ROOT

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.clients, pytest.mark.timeout(300)]

OPENAI_SUITE = ROOT / "build" / "suites" / "openai_agents-0.24.0"
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


def test_the_session_tests_of_openai_agents_pass(tmp_path: Path) -> None:
    assert OPENAI_SUITE.is_dir(), "scripts/client-packages downloads it"
    files = ["tests/memory/test_session.py", "tests/memory/test_session_limit.py"]
    chosen = ["-k", " and ".join(f"not {name}" for name in OF_SQLITE)]
    options = ["-p", "openai_suite_plugin", "-p", "no:randomly", "-p", "no:langsmith_plugin", "-q"]
    done = subprocess.run(
        [sys.executable, "-m", "pytest", *options, *chosen, *files],
        cwd=OPENAI_SUITE,
        env={"PATH": os.environ["PATH"], "HOLDFAST_HOME": str(tmp_path), "PYTHONPATH": str(PROGRAMS)},
        capture_output=True,
        text=True,
        check=False,
    )

    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert re.search(r"\b53 passed", done.stdout), done.stdout[-500:]
