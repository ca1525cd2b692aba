"""Without its framework, an adapter names the command that installs it."""

import subprocess
import sys

import pytest

FRAMEWORKS = {
    "openai_agents": ("agents", "openai-agents"),
    "claude_agent_sdk": ("claude_agent_sdk", "claude-agent-sdk"),
    "langgraph": ("langgraph", "langgraph"),
    "adk": ("google.adk", "adk"),
    "pydantic_ai": ("pydantic_ai", "pydantic-ai"),
}


@pytest.mark.parametrize("adapter", FRAMEWORKS)
def test_the_error_for_a_missing_framework_names_its_extra(adapter: str) -> None:
    module, extra = FRAMEWORKS[adapter]
    program = f"import sys; sys.modules[{module!r}] = None; import holdfast.adapters.{adapter}"
    ran = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True, text=True)

    error = ran.stderr.strip().splitlines()[-1]
    assert error.startswith("ImportError: the adapter for " + extra), ran.stderr
    assert f"[{extra}]" in error
