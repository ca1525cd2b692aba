"""The clients of OpenAI and Anthropic for Node, and the Vercel AI SDK, in a process of their own."""

import json
from pathlib import Path

from tests.api.clients.conftest import INSTALLED, NODE
from tests.api.clients.line_program import LineProgram
from tests.api.serving import KEY

PROGRAMS = Path(__file__).parents[1] / "node"


def make(url: str, form: str) -> LineProgram:
    assert (INSTALLED / "node_modules").is_dir(), "the clients are not installed: make .venv/ready-clients"
    client, _, stream = form.partition(" ")
    given = json.dumps({"url": url, "key": KEY, "client": client, "stream": bool(stream)})
    program = PROGRAMS / ("talk-ai.mjs" if client.startswith("ai-") else "talk.mjs")
    # As text, so that it finds the packages of the folder it runs in.
    return LineProgram([NODE, "--input-type=module", "-e", program.read_text("utf-8"), given], folder=INSTALLED)
