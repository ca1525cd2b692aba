"""acplint, a linter for agents, finds nothing to complain about; `acplint_dialect` explains the translation of names."""

import json
import sys
from pathlib import Path
from typing import Any

import pytest
from acplint.runner import ALL_CATEGORIES, ConformanceRunner

from tests.sampling import SOAK

DIALECT = Path(__file__).with_name("acplint_dialect.py")
SLOW = {"permissions", "file_operations", "terminals", "tool_calls", "plans"}
"""Categories that wait for many seconds for what an agent may send."""
pytestmark = [pytest.mark.clients, pytest.mark.timeout(300)]
STEPS = [
    {
        "think": "A plan.",
        "say": "I plan. ",
        "call": [
            {"name": "todo", "arguments": {"items": [{"content": "Look", "status": "in_progress"}]}},
            {"name": "terminal", "arguments": {"command": "rm -rf build"}},
        ],
    },
    {"think": "Done.", "say": "Done as asked."},
]


def lint(home: Path, folder: Path, categories: list[str]) -> Any:
    script = home.parent / "script.json"
    script.write_text(json.dumps({"steps": STEPS, "loop": True}))
    (home / "config.toml").write_text(f'model = "scripted:{script}"\n[agent]\ntitles = false\n')
    command = [sys.executable, str(DIALECT), str(home)]
    return ConformanceRunner(command, cwd=str(folder), categories=categories).run_all()


def test_every_category_passes(home: Path, folder: Path) -> None:
    categories = [name for name in ALL_CATEGORIES if SOAK or name not in SLOW]
    report = lint(home, folder, categories)
    by_name = {result.name: result for result in report.results}

    bad = [f"{result.category}/{result.name}: {result.message}" for result in report.results if not result.passed]
    assert not bad
    assert {result.category for result in report.results} == set(categories)
    assert by_name["load_session"].message is None, "it is advertised and works"
    for name in ("agent_thought_chunk_received", "usage_update_received", "plan_notification_received_streaming"):
        assert by_name[name].message is None, name
