"""docs/promises.md names tests that exist, and the tiers that run them; `make test` covers every promise."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
ROW = re.compile(r"^\| (\d+) \| ([a-z, ]+) \| (.+?) \| .+ \|$", re.M)
PROMISES = {
    int(number): (tiers.split(", "), re.findall(r"`(tests/[^`]+)`", named))
    for number, tiers, named in ROW.findall((ROOT / "docs" / "promises.md").read_text("utf-8"))
}
COLLECT = """
import json, sys, pytest
class Collected:
    def pytest_collection_finish(self, session):
        from tests.conftest import first_tier
        found = {}
        for item in session.items:
            found.setdefault(item.nodeid.partition("::")[0], set()).add(first_tier(item))
        with open(sys.argv[1], "w") as out:
            json.dump({file: sorted(tiers) for file, tiers in found.items()}, out)
sys.exit(pytest.main(["--collect-only", *sys.argv[2:]], plugins=[Collected()]))
"""


def test_every_promise_names_tests_that_exist() -> None:
    assert list(PROMISES) == list(range(1, 34))
    assert [name for _, named in PROMISES.values() for name in named if not (ROOT / name).exists()] == []


def test_every_promise_has_a_test_with_its_number_in_its_name() -> None:
    for number, (_, named) in PROMISES.items():
        text = "".join((ROOT / file).read_text("utf-8") for name in named for file in modules(name))
        assert re.search(rf"def test_promise_{number}_", text), f"promise {number}"


@pytest.mark.process
@pytest.mark.timeout(300)
def test_the_tiers_of_each_promise_are_those_of_its_tests(tmp_path: Path) -> None:
    paths = sorted({name for _, named in PROMISES.values() for name in named})
    paths.remove("tests/api/clients/test_python.py")  # left out by all tiers but soak
    env = {**os.environ, "HOLDFAST_TEST_TIER": "test"}
    out = tmp_path / "tiers.json"
    command = [sys.executable, "-c", COLLECT, str(out), *paths]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    collected = json.loads(out.read_text())

    actual = {}
    for number, (_, named) in PROMISES.items():
        files = [file for name in named for file in modules(name)]
        tiers = {tier for file in files for tier in collected.get(file, [])}
        tiers |= {"soak" for file in files if has_more_in_soak(ROOT / file)}
        actual[number] = [tier for tier in ("fast", "test", "soak") if tier in tiers]

    assert {number: tiers for number, (tiers, _) in PROMISES.items()} == actual
    assert [number for number, tiers in actual.items() if "test" not in tiers] == [], "each has a test with real things"


def modules(name: str) -> list[str]:
    path = ROOT / name
    return [str(one.relative_to(ROOT)) for one in sorted(path.rglob("test_*.py"))] if path.is_dir() else [name]


def has_more_in_soak(path: Path) -> bool:
    return re.search(r"mark\.soak|sampling", path.read_text("utf-8")) is not None
