"""Anthropic's clients for Node and Python, unmodified. `tests/api/anthropic` has more for Python."""

import uuid
from typing import Any

import pytest

from tests.api.clients.conftest import RunNode
from tests.api.clients.conversation import Conversation, listed
from tests.api.serving import Server

pytestmark = [pytest.mark.clients, pytest.mark.timeout(180)]


def test_the_client_for_node_continues_its_session(server: Server, run_node: RunNode) -> None:
    mark = uuid.uuid4().hex
    lines = [f"{mark} {n}" for n in range(10)]

    assert run_node("anthropic.mjs", what="talk", lines=lines) == [f"You said: {line}" for line in lines]
    [session] = [one for one in listed(server) if mark in one["preview"]]
    assert session["turn_count"] == 10


def test_the_client_for_node_streams_runs_tools_and_names_errors(run_node: RunNode) -> None:
    streamed = run_node("anthropic.mjs", what="stream", said="hello")
    called = run_node("anthropic.mjs", what="tools", said=f'use tool weather {{"place": "Bonn"}}\n{uuid.uuid4()}')
    errors = run_node("anthropic.mjs", what="errors")

    assert streamed["text"] == "You said: hello"
    assert (streamed["events"][0], streamed["events"][-1]) == ("message_start", "message_stop")
    assert called["stop"] == "tool_use" and "Rain in Bonn." in called["text"]
    assert errors == {
        "found": [
            ["BadRequestError", 400, "invalid_request_error", True],
            ["NotFoundError", 404, "not_found_error", True],
            ["BadRequestError", 400, "invalid_request_error", True],
        ],
        "counted": True,
    }


@pytest.mark.soak
def test_the_client_for_node_continues_its_session_through_compactions(server: Server, run_node: RunNode) -> None:
    conversation = Conversation()

    conversation.check(server, run_node("anthropic.mjs", what="talk", lines=conversation.all))


@pytest.mark.soak
def test_the_client_for_python_continues_its_session_through_compactions(server: Server) -> None:
    conversation, messages, replies = Conversation(), list[Any](), list[str]()
    with server.anthropic() as client:
        for line in conversation.all:
            messages.append({"role": "user", "content": line})
            reply = client.messages.create(model="holdfast", max_tokens=1024, messages=messages)
            messages.append({"role": "assistant", "content": reply.content})
            replies.append("".join(block.text for block in reply.content if block.type == "text"))

    conversation.check(server, replies)
