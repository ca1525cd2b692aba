"""What the API sends has the types of the official clients for Node: the compiler of TypeScript checks it.

`make test` checks a few requests, `make soak` one document of each shape that any test of the API has received.
"""

import json
import os
import re
import shutil
import subprocess
import sys
import uuid
from pathlib import Path
from typing import Any

import pytest

from tests.api.anthropic.conftest import VERSION
from tests.api.clients.conftest import INSTALLED, LIMIT, NODE, ROOT
from tests.api.recorded_documents import read_recorded, recording_to
from tests.api.sdk_types import TYPES
from tests.api.serving import Server, events

pytestmark = [pytest.mark.clients, pytest.mark.timeout(1800)]
NAMES = {
    "ChatCompletion": "OpenAI.Chat.ChatCompletion",
    "ChatCompletionChunk": "OpenAI.Chat.ChatCompletionChunk",
    "CompactedResponse": "OpenAI.Responses.CompactedResponse",
    "Conversation": "OpenAI.Conversations.Conversation",
    "ConversationDeletedResource": "OpenAI.Conversations.ConversationDeletedResource",
    "ConversationItem": "OpenAI.Conversations.Items.ConversationItem",
    "ConversationItemList": "OpenAI.Conversations.Items.ConversationItemList",
    "ErrorObject": "OpenAI.ErrorObject",
    "ErrorResponse": "Anthropic.ErrorResponse",
    "Message": "Anthropic.Message",
    "MessageTokensCount": "Anthropic.MessageTokensCount",
    "Model": "OpenAI.Model",
    "RawMessageStreamEvent": "Anthropic.RawMessageStreamEvent",
    "Response": "OpenAI.Responses.Response",
    "ResponseItemList": "OpenAI.Responses.ResponseItemList",
    "ResponseStreamEvent": "OpenAI.Responses.ResponseStreamEvent",
}
PROGRAM = """import type Anthropic from "@anthropic-ai/sdk";
import type OpenAI from "openai";
// An optional field may be null: the types leave that out, OpenAI's server and the Open Responses schema do not.
type Sent<T> = T extends (infer Item)[] ? Sent<Item>[]
  : T extends object ? { [K in keyof T]: undefined extends T[K] ? Sent<T[K]> | null : Sent<T[K]> }
  : T;
declare function fits<Expected>(): <Given extends Sent<Expected>>(given: Given) => void;
"""
OPTIONS = ["--noEmit", "--strict", "--skipLibCheck", "--target", "esnext", "--module", "nodenext", "--pretty", "false"]
PARAMETERS = {"type": "object", "properties": {"place": {"type": "string"}}}
CALL = 'use tool weather {"place": "Bonn"}'


def compile_documents(folder: Path, documents: list[tuple[str, Any]]) -> str:
    """What the compiler says about the documents, each in a line of a program; empty if nothing."""
    lines = [f"fits<{NAMES[kind]}>()({json.dumps(as_client_has_it(document))});" for kind, document in documents]
    program = folder / "documents.ts"
    program.write_text(PROGRAM + "\n".join(lines) + "\n")
    (folder / "node_modules").symlink_to(INSTALLED / "node_modules")
    compiler = INSTALLED / "node_modules" / "typescript" / "bin" / "tsc"
    assert compiler.is_file(), "the clients are not installed: make .venv/ready-clients"
    command = [NODE, compiler, *OPTIONS, program]
    done = subprocess.run(command, check=False, cwd=folder, capture_output=True, text=True, timeout=LIMIT)
    return done.stdout + done.stderr


def as_client_has_it(value: Any) -> Any:
    """The document with `output_text`, which the client adds to each response by itself."""
    if isinstance(value, list):
        return [as_client_has_it(one) for one in value]
    if not isinstance(value, dict):
        return value
    found = {name: as_client_has_it(one) for name, one in value.items()}
    return {**found, "output_text": ""} if found.get("object") == "response" else found


def test_every_type_is_checked() -> None:
    assert NAMES.keys() == TYPES.keys()


DELTA = {"type": "response.output_text.delta", "item_id": "x", "output_index": 0, "content_index": 0, "logprobs": []}
WRONG = [
    ("Model", {"id": "m", "object": "modell", "created": 1, "owned_by": "x"}),
    ("Model", {"id": "m", "object": "model", "created": None, "owned_by": "x"}),
    ("ResponseStreamEvent", {**DELTA, "delta": 5, "sequence_number": 1}),
    ("ResponseStreamEvent", {**DELTA, "delta": "a"}),
]


def test_a_wrong_document_is_found(tmp_path: Path) -> None:
    right = ("ResponseStreamEvent", {**DELTA, "delta": "a", "sequence_number": 1})
    found = compile_documents(tmp_path, [*WRONG, right])

    lines = {int(line) for line in re.findall(r"^documents\.ts\((\d+),", found, flags=re.MULTILINE)}
    first = PROGRAM.count("\n") + 1
    assert lines == set(range(first, first + len(WRONG))), found


def test_documents_and_streams_have_the_types_of_the_clients(server: Server, tmp_path: Path) -> None:
    with recording_to(tmp_path):
        receive_samples(server)
    documents = read_recorded(tmp_path)

    assert {kind for kind, _ in documents} == NAMES.keys()
    assert compile_documents(tmp_path, documents) == ""


def receive_samples(server: Server) -> None:
    """Receive at least one document of each type."""
    call = f"{CALL}\n{uuid.uuid4()}"
    function = {"name": "weather", "description": "Tells it.", "parameters": PARAMETERS}
    chat_tool = {"type": "function", "function": function}
    with server.http(headers=VERSION) as http:

        def post(path: str, **body: Any) -> Any:
            answer = http.post(path, json={"model": "holdfast", **body})
            return events(answer.text) if body.get("stream") else answer.json()

        for stream in (False, True):
            for words in ("Hello", call):
                messages = [{"role": "user", "content": words}]
                post("/v1/chat/completions", messages=messages, tools=[chat_tool], stream=stream)
                post("/v1/responses", input=messages, tools=[{"type": "function", **function}], stream=stream)
                tools = [{"name": "weather", "description": "Tells it.", "input_schema": PARAMETERS}]
                post("/v1/messages", messages=messages, max_tokens=100, tools=tools, stream=stream)
        post("/v1/chat/completions")
        post("/v1/messages")
        post("/v1/messages/count_tokens", messages=[{"role": "user", "content": "Hello"}])
        post("/v1/responses/compact", input="Hello")
        response = post("/v1/responses", input="Hello")
        http.get(f"/v1/responses/{response['id']}/input_items")
        http.get("/v1/models/holdfast")
        items = [{"type": "message", "role": "user", "content": "Hello"}]
        made = http.post("/v1/conversations", json={"items": items, "metadata": {"a": "b"}}).json()
        page = http.get(f"/v1/conversations/{made['id']}/items").json()
        http.get(f"/v1/conversations/{made['id']}/items/{page['data'][0]['id']}")
        http.delete(f"/v1/conversations/{made['id']}")


@pytest.mark.soak
def test_every_response_of_our_own_tests_has_the_types_of_the_clients(tmp_path: Path) -> None:
    environment = {**os.environ, "HOLDFAST_TEST_RECORD": str(tmp_path), "HOLDFAST_TEST_TIER": "test"}
    tests = [ROOT / "tests" / "api", f"--ignore={Path(__file__).parent}", f"--basetemp={tmp_path / 'base'}"]
    command = [sys.executable, "-m", "pytest", "-q", "-n", "2", *tests]
    done = subprocess.run(command, check=False, cwd=ROOT, env=environment, capture_output=True, text=True)
    assert done.returncode == 0, done.stdout[-5000:]
    shutil.rmtree(tmp_path / "base")
    documents = read_recorded(tmp_path)

    assert {kind for kind, _ in documents} == NAMES.keys()
    assert compile_documents(tmp_path, documents) == ""
