"""`holdfast torture` passes on a sound store, fails on a broken one, and leaves no files or processes behind."""

import json
import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil
import pytest

from tests import sampling
from tests.cli.conftest import ENVIRONMENT, Holdfast
from tests.crash.programs import wait_until
from tests.postgres.cluster import cluster, name_of
from tests.sampling import limit

pytestmark = [pytest.mark.crash, pytest.mark.timeout(limit(7))]
ROOT = Path(__file__).parents[2]
ROUNDS = max(3, sampling.ROUNDS // 10)
TRIALS = ["kill at every commit", "storm of kills", "two writers", "redelivery", "disk full", "clock jumps"]


def results_by_name(document: dict[str, Any]) -> dict[str, Any]:
    return {one["name"]: one for one in document["trials"]}


def run_trial(folder: Path, trial: str, opener: str, rounds: int = 3) -> dict[str, Any]:
    """The result of a trial on stores that an opener of tests/torture/broken.py opens."""
    line = [sys.executable, "-m", "tests.torture.run", f"sqlite:///{folder}/s.db", trial, str(rounds)]
    done = subprocess.run(
        [*line, f"tests.torture.broken:{opener}"],
        env={**ENVIRONMENT, "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    found: dict[str, Any] = json.loads(done.stdout)
    return found


def test_promise_25_all_trials_pass_on_a_scratch_store(holdfast: Holdfast, home: Path) -> None:
    holdfast("run", "hello", "--model", "scripted:echo")
    before = {path.name: path.read_bytes() for path in home.iterdir() if path.is_file()}

    ran = holdfast.process("torture", "--rounds", str(ROUNDS), "--seed", "11", "--json")

    assert ran.code == 0, ran.out + ran.err
    assert ran.json["seed"] == 11
    found = results_by_name(ran.json)
    assert list(found) == TRIALS
    assert {(one["lost"], one["doubled"], one["leaked"], one["broken"]) for one in found.values()} == {(0, 0, 0, "")}
    assert found["kill at every commit"]["tried"]["kills"] >= 3 * 8, "before, inside and after each commit"
    assert found["storm of kills"]["tried"]["kills"] == ROUNDS
    assert found["storm of kills"]["tried"]["messages"] > 0
    assert found["two writers"]["tried"]["late writes"] == min(ROUNDS, 20) * 5
    assert found["redelivery"]["tried"]["deliveries"] >= 18
    assert found["disk full"]["tried"]["refused"] == 3
    assert found["clock jumps"]["tried"]["sweeps"] == ROUNDS
    assert {path.name: path.read_bytes() for path in home.iterdir() if path.is_file()} == before
    assert ran.json["where"].startswith(str(home / "holdfast-torture-"))
    assert not Path(ran.json["where"]).exists()


@pytest.mark.soak
def test_promise_25_postgresql_is_tested_in_temporary_schemas(
    holdfast: Holdfast,
) -> None:
    url = cluster().new_database()

    ran = holdfast.process("torture", "--store", url, "--rounds", str(ROUNDS - 1))

    assert ran.code == 0, ran.out + ran.err
    head, columns, *rows, last = [re.split(r"\s{2,}", line) for line in ran.out.splitlines()]
    assert re.fullmatch(r"Testing in .+ \(removed afterwards\); your store is not touched\. Seed: \d+", head[0])
    assert columns[:5] == ["trial", "tried", "lost", "doubled", "leaked"]
    assert [row[0] for row in rows] == TRIALS
    for name, tried, *counts in rows:
        assert name == "disk full" or counts[:3] == ["0", "0", "0"], (name, tried, counts)
    assert rows[TRIALS.index("disk full")][1:] == ["skipped", "would fill the disk of the database server"]
    assert last == ["Nothing was lost, doubled or leaked."]
    left = cluster().execute("SELECT nspname FROM pg_namespace WHERE nspname LIKE 'holdfast%'", name_of(url))
    tables = cluster().execute("SELECT 1 FROM pg_tables WHERE schemaname = 'public'", name_of(url))
    assert (left, tables) == ([], [])


@pytest.mark.parametrize(
    ("opener", "trial", "fault"),
    [
        ("acknowledges_early", "kill at every commit", "lost"),
        ("writes_twice", "storm of kills", "doubled"),
        ("ignores_leases", "two writers", "doubled"),
        ("forgets_keys", "redelivery", "doubled"),
        ("reports_unsaved", "disk full", "lost"),
        ("keeps_dead_workers", "clock jumps", "leaked"),
    ],
)
def test_promise_25_the_suite_fails_on_a_broken_store(tmp_path: Path, opener: str, trial: str, fault: str) -> None:
    found = run_trial(tmp_path, trial, opener)

    assert found[fault] > 0
    assert found["findings"]
    assert not found["ok"]
    assert list(tmp_path.iterdir()) == []


def test_without_mount_the_size_of_files_is_limited(holdfast: Holdfast, tmp_path: Path) -> None:
    line = [sys.executable, "-m", "tests.torture.run", f"sqlite:///{tmp_path}/s.db", "disk full", "1"]
    done = subprocess.run(
        [*line, "holdfast.torture.scratch_store:open_url"],
        env={"PATH": str(tmp_path), "PYTHONPATH": str(ROOT)},
        cwd=ROOT,
        capture_output=True,
        check=True,
    )
    found = json.loads(done.stdout)

    assert "limit on file size" in found["note"]
    assert found["tried"]["refused"] == 3
    assert found["ok"], found


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_interrupted_it_leaves_neither_files_nor_processes(holdfast: Holdfast, home: Path, number: int) -> None:
    home.mkdir()
    with subprocess.Popen(holdfast.command("torture"), env=ENVIRONMENT, stdout=subprocess.PIPE, text=True) as process:
        ours = psutil.Process(process.pid)
        wait_until(lambda: bool(ours.children()), "a trial begins")
        children = ours.children()
        os.kill(process.pid, number)

        assert process.wait(60) == 130
    assert {path.name for path in home.iterdir()} <= {"logs"}
    assert not [child for child in children if child.is_running()]


@pytest.mark.parametrize(
    ("arguments", "code"),
    [
        (["--rounds", "0"], 2),
        (["--seed", "x"], 2),
        (["--store", "mysql://x"], 2),
        (["--store", "sqlite:///"], 2),
        (["--store", "postgresql://nobody@127.0.0.1:1/x?connect_timeout=2"], 1),
    ],
)
def test_wrong_usage_is_an_error_without_a_traceback(holdfast: Holdfast, arguments: list[str], code: int) -> None:
    ran = holdfast("torture", *arguments)

    assert ran.code == code
    assert "Traceback" not in ran.err
