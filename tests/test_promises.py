"""docs/promises.md names tests that exist, and the tiers that run them; `make test` covers every promise."""

import json
import os
import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.conftest import first_tier, is_whole_module_left_out

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
        from tests.test_promises import tiers_by_file
        with open(sys.argv[1], "w") as out:
            json.dump({file: sorted(tiers) for file, tiers in tiers_by_file(session.items).items()}, out)
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
def test_the_tiers_of_each_promise_are_those_of_its_tests(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    collected = tiers_by_file(request.session.items)
    promised = {file for _, named in PROMISES.values() for name in named for file in modules(name)}
    left_out = {file for file in promised if is_whole_module_left_out(ROOT / file)}
    if missing := sorted(promised - left_out - collected.keys()):  # they were not asked for
        collected |= collect(missing, tmp_path / "tiers.json")

    actual = {}
    for number, (_, named) in PROMISES.items():
        files = [file for name in named for file in modules(name)]
        tiers = {tier for file in files for tier in collected.get(file, ()) if tier != "soak"}
        tiers |= {"soak" for file in files if has_more_in_soak(ROOT / file)}
        actual[number] = [tier for tier in ("fast", "test", "soak") if tier in tiers]

    assert {number: tiers for number, (tiers, _) in PROMISES.items()} == actual
    assert [number for number, tiers in actual.items() if "test" not in tiers] == [], "each has a test with real things"


def collect(files: list[str], out: Path) -> dict[str, set[str]]:
    """The tiers of the tests in these files, found by another pytest."""
    env = {**os.environ, "HOLDFAST_TEST_TIER": "test"}
    command = [sys.executable, "-c", COLLECT, str(out), *files]
    done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, check=False)
    assert done.returncode in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED), done.stdout
    return {file: set(tiers) for file, tiers in json.loads(out.read_text()).items()}


def tiers_by_file(items: Iterable[pytest.Item]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    for item in items:
        found.setdefault(item.nodeid.partition("::")[0], set()).add(first_tier(item))
    return found


def modules(name: str) -> list[str]:
    path = ROOT / name
    return [str(one.relative_to(ROOT)) for one in sorted(path.rglob("test_*.py"))] if path.is_dir() else [name]


def has_more_in_soak(path: Path) -> bool:
    return re.search(r"mark\.soak|sampling", path.read_text("utf-8")) is not None
