"""The compliance suite of Open Responses, unmodified. It is not part of this repository.

`HOLDFAST_TEST_OPENRESPONSES=DIRECTORY .venv/bin/python -m pytest tests/api/clients/test_openresponses.py` runs it in any
tier, from a copy of the suite's directory. Without the variable, `make soak` runs it from `../shared/suites/openresponses`,
if that exists; otherwise there is no test.
"""

import json
import os
import shutil
import subprocess
from pathlib import Path

import pytest

from tests.api.clients.conftest import INSTALLED, LIMIT, NODE, ROOT, plain_environment
from tests.api.serving import KEY, Server, recording_vendor
from tests.sampling import SOAK

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]
GIVEN = os.environ.get("HOLDFAST_TEST_OPENRESPONSES", "")
USUAL = ROOT.parent / "shared" / "suites" / "openresponses"
TESTS = 17
"""How many tests the suite has; fewer passed tests are a failure, also if some were skipped."""

if GIVEN or (SOAK and USUAL.is_dir()):

    def test_the_open_responses_suite_passes(tmp_path: Path) -> None:
        suite = Path(GIVEN) if GIVEN else USUAL
        program = "bin/compliance-test.ts"
        assert (suite / program).is_file(), f"{suite} is not the Open Responses suite: it has no {program}"
        copy = tmp_path / "suite"
        shutil.copytree(suite, copy, ignore=shutil.ignore_patterns("node_modules"))
        (copy / "node_modules").symlink_to(INSTALLED / "node_modules")
        hooks = Path(__file__).parent / "node" / "typescript-imports.mjs"
        options = ["--model", "holdfast", "--api-key", KEY, "--json", "--base-url"]

        with (
            recording_vendor(tmp_path / "requests.jsonl", "--call", "get_weather") as vendor,
            Server(tmp_path / "home", vendor=vendor) as server,
        ):
            done = subprocess.run(
                [str(NODE), "--import", str(hooks), program, *options, f"{server.url}/v1"],
                check=False,
                cwd=copy,
                capture_output=True,
                text=True,
                timeout=LIMIT,
                env=plain_environment(),
            )

        assert done.stdout, done.stderr
        found = json.loads(done.stdout)
        failed = {one["id"]: one.get("errors") for one in found["results"] if one["status"] != "passed"}
        assert failed == {}
        assert found["summary"]["passed"] == found["summary"]["total"] == TESTS
