"""The official client for Node and the Vercel AI SDK, unmodified."""

import uuid

import pytest

from tests.api.clients.conftest import RunNode
from tests.api.clients.conversation import Conversation
from tests.api.serving import Server

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]
PROVIDERS = ["responses", "chat", "compatible"]


def weather() -> str:
    return f'use tool weather {{"place": "Bonn"}}\n{uuid.uuid4().hex}'


@pytest.mark.parametrize("what", ["chat", "responses"])
def test_openai_for_node_continues_its_session_through_compactions(
    server: Server, run_node: RunNode, what: str
) -> None:
    conversation = Conversation()

    conversation.check(server, run_node("openai.mjs", what=what, lines=conversation.all))


def test_openai_for_node_streams(run_node: RunNode) -> None:
    said = uuid.uuid4().hex

    assert run_node("openai.mjs", what="chatStream", said=said) == f"You said: {said}"
    streamed = run_node("openai.mjs", what="responsesStream", said=said)
    assert streamed == {"text": f"You said: {said}", "final": f"You said: {said}"}


@pytest.mark.parametrize("what", ["chatTools", "responsesTools"])
def test_openai_for_node_runs_its_tools(run_node: RunNode, what: str) -> None:
    assert "Rain in Bonn." in run_node("openai.mjs", what=what, said=weather())


def test_openai_for_node_retrieves_a_background_response(run_node: RunNode) -> None:
    found = run_node("openai.mjs", what="background", said="later")

    assert (found["text"], found["gone"]) == ("You said: later", 404)
    assert found["events"][0] == "response.output_item.added" and found["events"][-1] == "response.completed"


@pytest.mark.soak
@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_ai_sdk_continues_its_session_through_compactions(server: Server, run_node: RunNode, provider: str) -> None:
    conversation = Conversation()

    conversation.check(server, run_node("ai-sdk.mjs", provider=provider, what="talk", lines=conversation.all))


@pytest.mark.soak
@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_ai_sdk_streams(run_node: RunNode, provider: str) -> None:
    found = run_node("ai-sdk.mjs", provider=provider, what="stream", said="hello")

    assert (found["text"], found["finish"]) == ("You said: hello", "stop")
    assert found["tokens"] > 0


@pytest.mark.soak
@pytest.mark.parametrize("provider", PROVIDERS)
def test_the_ai_sdk_runs_its_tools_in_one_session(run_node: RunNode, provider: str) -> None:
    found = run_node("ai-sdk.mjs", provider=provider, what="tools", said=weather())

    assert "Rain in Bonn." in found["text"]
    assert len(found["sessions"]) == 2 and len(set(found["sessions"])) == 1
