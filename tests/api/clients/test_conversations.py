"""Unmodified client libraries talk in one session while the server is killed between and during turns."""

from contextlib import closing
from importlib import import_module
from pathlib import Path

import pytest

from tests.api.clients.talk import Talk
from tests.api.serving import Server

pytestmark = [pytest.mark.clients, pytest.mark.timeout(240)]
# Imported only where they run: that takes seconds.
LIBRARIES = {
    "openai_sdk": ("chat", "chat stream", "responses", "responses stream", "items", "items stream", "websocket"),
    "langchain": ("chat", "chat stream", "responses", "responses stream", "previous"),
    "agents_sdk": ("chat", "chat stream", "responses", "responses stream"),
    "pydantic_agent": ("chat", "chat stream", "responses", "responses stream"),
    "anthropic_sdk": ("plain", "stream"),
    "node_sdks": [
        *("chat", "chat stream", "responses", "responses stream", "anthropic", "anthropic stream"),
        *("ai-responses", "ai-responses stream", "ai-chat", "ai-chat stream", "ai-compatible", "ai-compatible stream"),
    ],
    "llm_command": ("plain", "stream"),
    "patterns": ("opencode", "open-webui", "open-webui without names", "aider", "sliding window"),
}
REPRESENTATIVES = [
    ("langchain", "responses"),
    ("agents_sdk", "responses"),
    ("pydantic_agent", "chat"),
    ("openai_sdk", "websocket"),
    ("anthropic_sdk", "stream"),
    ("node_sdks", "anthropic stream"),
    *(("patterns", form) for form in ("opencode", "open-webui", "aider", "sliding window")),
]


@pytest.mark.parametrize(("library", "form"), REPRESENTATIVES)
def test_four_turns_with_two_crashes_are_one_session(upstream: Server, record: Path, library: str, form: str) -> None:
    talk(upstream, record, library, form, 4)


@pytest.mark.soak
@pytest.mark.parametrize(("library", "form"), [(name, form) for name, forms in LIBRARIES.items() for form in forms])
def test_ten_turns_with_two_crashes_are_one_session(upstream: Server, record: Path, library: str, form: str) -> None:
    talk(upstream, record, library, form, 10)


def talk(server: Server, record: Path, library: str, form: str, turns: int) -> None:
    record.touch()
    program = import_module(f"tests.api.clients.programs.{library}").make(server.url, form)
    with closing(program):
        conversation = Talk(server, record, program)
        conversation.take(turns)
        conversation.check()
