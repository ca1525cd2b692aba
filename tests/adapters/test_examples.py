"""Every example of docs/adapters.md runs as pasted, in a process of its own; the model is reached by documented variables."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from tests.adapters.model_server import ANSWER, running
from tests.contract.store_urls import new_place
from tests.crash.programs import ROOT
from tests.sampling import every_nth

pytestmark = [pytest.mark.process, pytest.mark.slow, pytest.mark.clients, pytest.mark.timeout(120)]
EXAMPLES = {
    "OpenAI Agents SDK": (ANSWER, "openai-agents:chat-1"),
    "LangGraph": ("You sent 1 messages.", "langgraph:chat-1"),
    "Long-term memory": ("I like rain.", "langgraph-store:memories/bo"),
    "Google ADK": (ANSWER, "adk:notes/bo/chat-1"),
    "Pydantic AI": (ANSWER, "pydantic-ai:chat-1"),
}
"""What the first example of a section prints, and a session that it leaves."""


def run(command: list[str], env: dict[str, str]) -> str:
    done = subprocess.run(
        [sys.executable, *command], env={**os.environ, **env}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize(
    ("heading", "kind"),
    [(one, "sqlite") for one in EXAMPLES] + [(one, "postgres") for one in every_nth(list(EXAMPLES), 3)],
)
def test_an_example_prints_an_answer_and_leaves_its_session(heading: str, kind: str, tmp_path: Path) -> None:
    text = (ROOT / "docs" / "adapters.md").read_text("utf-8").partition(f"# {heading}\n")[2]
    code = re.findall(r"```python\n(.*?)```", text, re.DOTALL)[0]
    printed, ref = EXAMPLES[heading]
    example = tmp_path / "example.py"
    example.write_text(code, "utf-8")
    with running() as variables:
        env = {**variables, "HOLDFAST_HOME": str(tmp_path / "home"), "HOLDFAST_STORE": new_place(kind, tmp_path)}
        assert run([str(example)], env) == printed + "\n"
        assert printed in run(["-m", "holdfast", "sessions", "export", ref], env)
        run(["-m", "holdfast", "sessions", "verify"], env)
