"""An import that is killed at any moment is completed by the next one, without duplicates. (promises 1, 23)"""

import asyncio
import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.crash.strace import need_strace
from tests.interop import sample_files
from tests.store.copies import heads, is_sound

ENVIRONMENT = {name: os.environ[name] for name in ("PATH", "LANG", "PYTHONPATH") if name in os.environ}
MOMENTS = (1, 2, 3, 4, 6, 9, 14, 20, 30, 45, 70, 110)


def sources(folder: Path) -> Path:
    """Many small sessions, and one that takes several commits."""
    source = sample_files.Hermes(folder / "hermes" / "state.db")
    for n in range(40):
        source.session(f"s{n}")
        source.exchange(f"s{n}", f"question {n}", "answer")
        source.tool(f"s{n}", f"call_{n}", "output")
    source.close()
    lines = [sample_files.codex_lines()[0]]
    for n in range(1500):
        lines += [
            sample_files.codex_said(n, "user", f"question {n} " + "x" * 200),
            sample_files.codex_said(n, "assistant", f"answer {n}"),
        ]
    sample_files.write_lines(folder / "codex" / "rollout-1.jsonl", lines)
    sample_files.claude(folder / "claude" / "11111111-2222-4333-8444-555555555555.jsonl")
    sample_files.chatgpt(folder / "chatgpt" / "conversations.json")
    return folder


def run(home: Path, folder: Path, *before: str) -> int:
    command = [sys.executable, "-m", "holdfast", "--home", str(home), "sessions", "import", str(folder)]
    return subprocess.run([*before, *command], check=False, capture_output=True, env=ENVIRONMENT).returncode


@pytest.mark.crash
@pytest.mark.timeout(600)
@pytest.mark.parametrize("call", [pytest.param("pwrite64", marks=pytest.mark.soak), "fdatasync"])
def test_an_import_killed_at_any_moment_is_completed_by_the_next(tmp_path: Path, call: str) -> None:
    need_strace()
    folder = sources(tmp_path / "sources")
    assert run(tmp_path / "whole", folder) == 0
    whole = heads(tmp_path / "whole" / "holdfast.db")
    assert len(whole) == 40 + 1 + 2 + 4
    killed = 0
    for nth in MOMENTS:
        home = tmp_path / f"home-{nth}"
        inject = f"inject={call}:signal=SIGKILL:when={nth}"
        status = run(home, folder, "strace", "-f", "-o", "/dev/null", "-e", f"trace={call}", "-e", inject)
        killed += status in (-signal.SIGKILL, 128 + signal.SIGKILL)

        assert run(home, folder) == 0
        assert asyncio.run(is_sound(home / "holdfast.db"))
        assert heads(home / "holdfast.db") == whole, f"killed at the {nth}. {call}"
        if status == 0:
            break
    assert killed > 5, "the scenario makes such calls"
