"""Each parameter of Anthropic's SDK is honoured, passed on or rejected by name, as the table in docs/api.md says."""

import json
import re
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any, get_type_hints

import httpx
import pytest
from anthropic.types import message_count_tokens_params, message_create_params
from anthropic.types.beta import message_create_params as beta_params

from holdfast.api.anthropic.request import NO_EFFECT
from holdfast.api.anthropic.request_models import MessagesRequest
from holdfast.model.provider import ModelRequest, ToolSpec
from holdfast.providers.anthropic.request import render
from tests.api.anthropic.conftest import VERSION, post
from tests.api.anthropic.sdk_types import check_error, check_message
from tests.api.serving import Server
from tests.api.test_docs import named_under

HEADERS = {"user_profile_id", "workspace_id", "betas"}
"""Parameters of the SDK that it sends as headers."""
OLD = {"temperature", "top_p", "top_k"}
"""Parameters of earlier versions of the SDK."""
SCHEMA = {"type": "object", "properties": {}}
TOOL = {"name": "weather", "input_schema": SCHEMA}
FORMAT = {"type": "json_schema", "schema": SCHEMA}


def of_sdk() -> set[str]:
    kinds = [
        message_create_params.MessageCreateParamsBase,
        message_create_params.MessageCreateParamsStreaming,
        message_count_tokens_params.MessageCountTokensParams,
        beta_params.MessageCreateParamsBase,
    ]
    return {name for kind in kinds for name in get_type_hints(kind)} - HEADERS


def test_the_table_names_every_parameter_of_the_sdk() -> None:
    named = named_under("### Parameters of a Messages request")

    assert named == {*MessagesRequest.__struct_fields__, *NO_EFFECT}
    assert of_sdk() <= named
    assert named - of_sdk() == OLD


ACCEPTED: list[dict[str, Any]] = [
    {"system": "Be brief."},
    {"system": [{"type": "text", "text": "Be brief.", "cache_control": {"type": "ephemeral"}}]},
    {"temperature": 0.5},
    {"metadata": {"user_id": "u"}},
    {"tools": [TOOL | {"cache_control": {"type": "ephemeral"}, "strict": True, "type": "custom"}]},
    {"tools": [TOOL], "tool_choice": {"type": "auto"}},
    {"tools": [TOOL], "tool_choice": {"type": "none"}},
    {"thinking": {"type": "disabled"}},
    {"thinking": {"type": "adaptive", "display": "summarized"}},
    {"output_config": {"effort": "high"}},
    {"service_tier": "auto"},
    {"service_tier": "standard_only"},
    {"cache_control": {"type": "ephemeral", "ttl": "1h"}},
    {"context_management": {"edits": [{"type": "clear_thinking_20251015", "keep": "all"}]}},
    {"stop_sequences": []},
    {"top_p": 1},
    {"speed": "standard"},
    *({name: None} for name in sorted(NO_EFFECT)),
]
REJECTED: list[tuple[str, dict[str, Any]]] = [
    ("top_p", {"top_p": 0.5}),
    ("top_k", {"top_k": 5}),
    ("speed", {"speed": "fast"}),
    ("stop_sequences", {"stop_sequences": ["END"]}),
    ("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "any"}}),
    ("tool_choice", {"tools": [TOOL], "tool_choice": {"type": "auto", "disable_parallel_tool_use": True}}),
    ("output_config.format", {"output_config": {"format": FORMAT}}),
    *((name, {name: {"id": "x"}}) for name in sorted(NO_EFFECT.keys() - {"top_p", "top_k", "speed"})),
]


@pytest.mark.parametrize("given", ACCEPTED, ids=str)
def test_a_parameter_is_accepted_by_every_model(http: httpx.Client, given: dict[str, Any]) -> None:
    check_message(post(http, "hello", **given))


@pytest.mark.parametrize(("name", "given"), REJECTED, ids=str)
def test_a_parameter_that_the_model_does_not_support_is_rejected(
    http: httpx.Client, name: str, given: dict[str, Any]
) -> None:
    assert name in check_error(post(http, "hello", **given))


def test_parameters_reach_a_model_of_openai(upstream: Server, record: Path) -> None:
    more = {"tools": [TOOL], "tool_choice": {"type": "tool", "name": "weather"}, "output_config": {"format": FORMAT}}
    with upstream.http() as http:
        check_message(post(http, "hello", stop_sequences=["END"], top_p=0.5, thinking={"type": "adaptive"}, **more))

    sent = json.loads(record.read_text().splitlines()[-1])
    assert (sent["stop"], sent["top_p"]) == (["END"], 0.5)
    assert sent["tool_choice"] == {"type": "function", "function": {"name": "weather"}}
    assert sent["response_format"]["json_schema"]["schema"] == SCHEMA
    assert not sent.keys() & {"thinking", "stop_sequences", "output_config"}


def test_a_name_of_a_model_of_anthropic_is_the_model_of_the_session(server: Server, http: httpx.Client) -> None:
    assert check_message(post(http, "hello", model="claude-opus-5"))["model"] == server.model("echo")
    asked = {"model": "claude-opus-5", "messages": [{"role": "user", "content": "hello"}]}
    assert http.post("/v1/messages/count_tokens", json=asked, headers=VERSION).status_code == 200


def body(options: Mapping[str, object], *tools: ToolSpec) -> dict[str, Any]:
    """What is sent to Anthropic for these options."""
    given = {name: json.dumps(value) for name, value in options.items()}
    request = ModelRequest(model="claude-opus-5", system="", messages=(), tools=tools, options=given)
    found: dict[str, Any] = json.loads(b"".join(render(request).chunks))
    return found


def test_parameters_reach_a_model_of_anthropic() -> None:
    options = {
        "anthropic.thinking": {"type": "adaptive"},
        "anthropic.stop_sequences": ["END"],
        "anthropic.tool_choice": {"type": "any"},
        "anthropic.output_config": {"format": FORMAT},
        "stop": ["END"],
        "response_format": {},
    }
    sent = body(options, ToolSpec("weather", "", {"type": "object"}))

    assert (sent["thinking"], sent["stop_sequences"]) == ({"type": "adaptive"}, ["END"])
    assert (sent["tool_choice"], sent["output_config"]) == ({"type": "any"}, {"format": FORMAT})
    assert not sent.keys() & {"stop", "response_format"}
    assert "tool_choice" not in body(options)


def test_the_example_runs_as_written(tmp_path: Path) -> None:
    text = (Path(__file__).parents[3] / "docs" / "api.md").read_text("utf-8").partition("\n## Messages\n")[2]
    program = re.findall(r"```python\n(.*?)```", text, flags=re.DOTALL)[0]
    with Server(tmp_path / ".holdfast") as server:
        (server.home / "api-key").write_text("hfk-for-the-tests-only")
        program = program.replace(":8420", f":{server.port}")
        command = [sys.executable, "-c", program]
        done = subprocess.run(command, env={"HOME": str(tmp_path)}, capture_output=True, text=True, check=True)

    assert done.stdout == "You said: Hello\n"
