"""Every parameter that the official client knows is in the tables of docs/api.md, and is treated as they say."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from openai import OpenAI
from openai.types.chat import completion_create_params as chat_params
from openai.types.responses import response_create_params as responses_params

from tests.api.serving import Server, recording_vendor

PAGE = (Path(__file__).parents[3] / "docs" / "api.md").read_text("utf-8")
TREATMENTS = ("honoured", "passed on", "rejected")
FUNCTION = {"name": "weather", "parameters": {"type": "object", "properties": {}}}
CHAT: dict[str, Any] = {
    "model": "holdfast",
    "messages": [{"role": "user", "content": "Hello"}],
    "stream": False,
    "stream_options": {"include_usage": True},
    "tools": [{"type": "function", "function": FUNCTION}],
    "tool_choice": "none",
    "temperature": 0.5,
    "max_tokens": 50,
    "max_completion_tokens": 50,
    "user": "me",
    "safety_identifier": "me",
    "prompt_cache_key": "table",
    "metadata": {"a": "b"},
    "store": True,
    "top_p": 0.5,
    "frequency_penalty": 0.5,
    "presence_penalty": 0.5,
    "logit_bias": {"1": 1},
    "parallel_tool_calls": False,
    "service_tier": "flex",
    "response_format": {"type": "json_object"},
    "stop": ["x"],
    "seed": 7,
    "reasoning_effort": "low",
    "verbosity": "low",
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {"mode": "explicit"},
    "n": 2,
    "logprobs": True,
    "top_logprobs": 2,
    "modalities": ["text", "audio"],
    "audio": {"voice": "alloy", "format": "mp3"},
    "function_call": "auto",
    "functions": [FUNCTION],
    "moderation": {"model": "m"},
    "prediction": {"type": "content", "content": "x"},
    "web_search_options": {},
}
RESPONSES: dict[str, Any] = {
    "model": "holdfast",
    "input": "Hello",
    "instructions": "Be brief.",
    "stream": False,
    "stream_options": {"include_obfuscation": False},
    "tools": [{"type": "function", **FUNCTION}],
    "tool_choice": "none",
    "temperature": 0.5,
    "max_output_tokens": 50,
    "max_tool_calls": 1,
    "previous_response_id": None,
    "conversation": "table",
    "store": False,
    "background": False,
    "metadata": {"a": "b"},
    "user": "me",
    "safety_identifier": "me",
    "prompt_cache_key": "table",
    "truncation": "auto",
    "include": ["reasoning.encrypted_content"],
    "client_metadata": {"a": "b"},
    "reasoning": {"effort": "low"},
    "text": {"format": {"type": "json_object"}, "verbosity": "low"},
    "top_p": 0.5,
    "parallel_tool_calls": False,
    "service_tier": "flex",
    "frequency_penalty": 0.5,
    "presence_penalty": 0.5,
    "prompt_cache_retention": "24h",
    "prompt_cache_options": {"mode": "explicit"},
    "top_logprobs": 2,
    "access_programs": {"cyber": "standard"},
    "context_management": [{"type": "compaction"}],
    "image": {"context_compression": "auto"},
    "moderation": {"model": "m"},
    "prompt": {"id": "p"},
}
PASSED_AS = {"reasoning": "reasoning_effort", "text": "response_format"}
"""Names in a Chat Completions request of what a Responses request calls otherwise."""
REPEATED = [
    "max_tool_calls", "max_output_tokens", "temperature", "top_p", "frequency_penalty", "presence_penalty", "metadata", "user",
    "safety_identifier", "prompt_cache_key", "prompt_cache_retention", "truncation", "store", "background",
    "parallel_tool_calls", "service_tier", "instructions", "tool_choice",
]  # fmt: skip


def table(heading: str) -> dict[str, str]:
    """The treatment of each parameter in the table under the heading."""
    text = PAGE.partition(f"{heading}\n")[2].partition("\n#")[0]
    rows = re.findall(r"^\| (`.+?) \| ([a-z ]+) \|", text, re.M)
    return {name: treatment for names, treatment in rows for name in re.findall(r"`(\w+)`", names)}


TABLES = {
    "/v1/chat/completions": (table("## Request parameters"), CHAT),
    "/v1/responses": (table("### Parameters of a Responses request"), RESPONSES),
}
CASES = [(path, name) for path, (_, samples) in TABLES.items() for name in samples]


@pytest.mark.parametrize(
    ("path", "known"), [("/v1/chat/completions", chat_params), ("/v1/responses", responses_params)]
)
def test_the_table_has_every_parameter_of_the_official_client(path: str, known: Any) -> None:
    base = known.CompletionCreateParamsBase if known is chat_params else known.ResponseCreateParamsBase
    listed, samples = TABLES[path]

    assert {*base.__annotations__, "stream"} - set(listed) == set()
    assert set(listed.values()) == set(TREATMENTS)
    assert set(samples) == set(listed), "each has a sample"


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Server, Path]]:
    folder = tmp_path_factory.mktemp("parameters")
    with (
        recording_vendor(folder / "requests.jsonl") as vendor,
        Server(folder / "home", vendor=vendor) as server,
    ):
        yield server, folder / "requests.jsonl"


@pytest.mark.parametrize(("path", "name"), CASES)
def test_a_parameter_is_treated_as_the_table_says(recorded: tuple[Server, Path], path: str, name: str) -> None:
    server, record = recorded
    listed, samples = TABLES[path]
    needed = ("model", "messages", "input") + (("tools",) if name in ("tool_choice", "parallel_tool_calls") else ())
    body = {key: samples[key] for key in (*needed, name) if key in samples}
    if name == "stream_options":
        body["stream"] = True

    with server.http() as http:
        response = http.post(path, json=body)

    if listed[name] == "rejected":
        assert response.status_code == 400
        assert (response.json()["error"]["code"], response.json()["error"]["param"]) == ("unsupported_parameter", name)
        return
    assert response.status_code == 200, response.text
    received = json.loads(record.read_text().splitlines()[-1])
    if listed[name] == "passed on":
        expected = {"reasoning": "low", "text": {"type": "json_object"}}.get(name, samples[name])
        assert received[PASSED_AS.get(name, name)] == expected, "the model's server got it"
    if path == "/v1/responses" and name in REPEATED:
        assert response.json()[name] == samples[name]


def test_a_sampled_temperature_and_limit_reach_the_model(recorded: tuple[Server, Path]) -> None:
    server, record = recorded
    with server.openai() as client:
        client.chat.completions.create(
            model="holdfast", messages=[{"role": "user", "content": "Hello"}], temperature=0.25, max_completion_tokens=9
        )

    received = json.loads(record.read_text().splitlines()[-1])
    assert (received["temperature"], received["max_tokens"]) == (0.25, 9)


def test_names_of_users_reach_the_model_and_wrong_ones_are_refused(recorded: tuple[Server, Path]) -> None:
    server, record = recorded
    given = [
        {"role": "user", "name": "Ada", "content": "I am here."},
        {"role": "user", "name": "Bo", "content": "So am I."},
        {"role": "user", "content": "Who is here?"},
    ]
    with server.http() as http:
        assert http.post("/v1/chat/completions", json={"model": "holdfast", "messages": given}).status_code == 200
        wrong = [{"role": "user", "name": "Ada L.", "content": "Hello"}]
        refused = http.post("/v1/chat/completions", json={"model": "holdfast", "messages": wrong}).json()["error"]

    received = json.loads(record.read_text().splitlines()[-1])["messages"]
    assert [(one.get("name"), one["content"]) for one in received if one["role"] == "user"] == [
        ("Ada", "I am here."),
        ("Bo", "So am I."),
        (None, "Who is here?"),
    ]
    assert (refused["code"], refused["param"]) == ("invalid_value", "messages[0].name")


@pytest.mark.parametrize("strict", [True, False])
@pytest.mark.parametrize("path", TABLES)
def test_a_strict_tool_is_accepted_and_reaches_the_model_as_strict(
    recorded: tuple[Server, Path], path: str, *, strict: bool
) -> None:
    server, record = recorded
    function = {**FUNCTION, "strict": strict}
    if path == "/v1/responses":
        body: Any = {"input": "Hello", "tools": [{"type": "function", **function}]}
    else:
        body = {"messages": CHAT["messages"], "tools": [{"type": "function", "function": function}]}
    with server.http() as http:
        response = http.post(path, json={"model": "holdfast", **body})

    assert response.status_code == 200, response.text
    received = json.loads(record.read_text().splitlines()[-1])["tools"]
    [tool] = [one["function"] for one in received if one["function"]["name"] == FUNCTION["name"]]
    assert tool.get("strict", False) is strict


@pytest.mark.parametrize("mode", ["auto", "required"])
@pytest.mark.parametrize("path", TABLES)
def test_allowed_tools_are_the_only_ones_offered(recorded: tuple[Server, Path], path: str, mode: str) -> None:
    server, record = recorded
    functions = [{"name": name, "parameters": {"type": "object", "properties": {}}} for name in ("one", "two")]
    if path == "/v1/responses":
        tools: list[Any] = [{"type": "function", **function} for function in functions]
        choice: Any = {"type": "allowed_tools", "mode": mode, "tools": [{"type": "function", "name": "two"}]}
        body: Any = {"input": "Hello"}
    else:
        tools = [{"type": "function", "function": function} for function in functions]
        allowed = {"mode": mode, "tools": [{"type": "function", "function": {"name": "two"}}]}
        choice, body = {"type": "allowed_tools", "allowed_tools": allowed}, {"messages": CHAT["messages"]}
    with server.http() as http:
        sent = {"model": "holdfast", **body, "tools": tools}
        response = http.post(path, json={**sent, "tool_choice": choice})
        unknown = json.loads(json.dumps(choice).replace('"two"', '"three"'))
        refused = http.post(path, json={**sent, "tool_choice": unknown})

    assert response.status_code == 200, response.text
    received = json.loads(record.read_text().splitlines()[-1])
    assert [tool["function"]["name"] for tool in received["tools"]] == ["two"]
    assert received.get("tool_choice") == ("required" if mode == "required" else None)
    assert (refused.status_code, refused.json()["error"]["param"]) == (400, "tool_choice")
    if path == "/v1/responses":
        assert [tool["name"] for tool in response.json()["tools"]] == ["one", "two"]
        assert response.json()["tool_choice"] == choice


def test_no_more_than_max_tool_calls_of_the_servers_tools_run(recorded: tuple[Server, Path]) -> None:
    server, record = recorded
    lines = [f'use tool write_file {{"path": "limited-{n}", "content": "{n}"}}' for n in range(3)]
    with server.openai() as client:
        done: Any = client.responses.create(model="holdfast", input="\n".join(lines), max_tool_calls=2)
        found = client.get(f"/sessions/{done.holdfast['session_id']}/messages", cast_to=httpx.Response).json()

    received = json.loads(record.read_text().splitlines()[-1])
    results = [one["content"] for one in received["messages"] if one["role"] == "tool"]
    assert len(results) == 3
    assert [("allows 2 calls" in text) for text in results] == [False, False, True]
    assert "tools" not in received, "the model is offered no more of them"
    assert done.max_tool_calls == 2 and done.status == "completed"
    assert len([one for one in found["messages"] if one["role"] == "tool"]) == 3


def test_a_model_can_be_retrieved_by_each_of_its_names(client: OpenAI, http: httpx.Client, server: Server) -> None:
    names = [model.id for model in client.models.list()]

    assert {"holdfast", "scripted:echo"} <= set(names) and any("/" in name for name in names)
    for name in (*names, "echo"):
        assert client.models.retrieve(name).id == name
    response = http.get("/v1/models/nobody")
    assert (response.status_code, response.json()["error"]["code"]) == (404, "model_not_found")


def test_metadata_of_a_chat_completion_is_in_the_log(client: OpenAI, http: httpx.Client) -> None:
    done = client.chat.completions.with_raw_response.create(
        model="holdfast", messages=[{"role": "user", "content": "Hello"}], metadata={"order": "7"}
    )
    events = http.get(f"/v1/sessions/{done.headers['x-session-id']}/events").json()["events"]

    [started] = [event["body"] for event in events if event["kind"] == "turn_started"]
    assert started["terms"]["metadata"] == {"order": "7"}
