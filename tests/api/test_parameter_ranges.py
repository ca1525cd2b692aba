"""No value of a parameter that a vendor's API has, right or wrong, is answered with a server error."""

import copy
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any, get_type_hints

import anthropic.types.message_create_params as anthropic_messages
import httpx
import pytest
from openai.types.chat import completion_create_params as chat_completions
from openai.types.responses import response_create_params as responses

from holdfast.api.app import ROUTES
from tests.api.anthropic.conftest import VERSION
from tests.api.serving import KEY, Server
from tests.sampling import every_nth

pytestmark = pytest.mark.timeout(600)

NUMBERS = (-2, -1, 0, 0.5, 1, 1.5, 2, 2.5, 3, 20, 21, 2**31, 2**53, 2**63, 10**30, 1e308, -1e308, float("nan"))
TEXTS = ("", "x", "auto", "none", "\0", "\ud800", "x" * 5000)
OTHERS = (None, True, False, [], {}, [None], [[]], ["x"], {"a": None}, {"type": None}, {"type": "x"}, [{"type": "x"}])
VALUES: tuple[Any, ...] = (*NUMBERS, *TEXTS, *OTHERS)

FUNCTION = {"name": "look", "description": "Look.", "parameters": {"type": "object", "properties": {}}, "strict": True}
SCHEMA = {"name": "answer", "schema": {"type": "object", "properties": {}}, "strict": True}
CALL = {"id": "c1", "type": "function", "function": {"name": "look", "arguments": "{}"}}
PIXEL = "data:image/png;base64,iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="
CHAT_MESSAGES = [
    {"role": "system", "content": "Be kind.", "name": "boss"},
    {"role": "user", "content": [{"type": "text", "text": "Hi"}, {"type": "image_url", "image_url": {"url": PIXEL}}]},
    {"role": "assistant", "content": "Hm", "tool_calls": [CALL], "refusal": None},
    {"role": "tool", "tool_call_id": "c1", "content": "seen"},
    {"role": "user", "content": "Go on", "name": "ada"},
]
ITEMS = [
    {"type": "message", "role": "user", "content": [{"type": "input_text", "text": "Hi"}]},
    {"type": "message", "role": "user", "content": [{"type": "input_image", "image_url": PIXEL, "detail": "low"}]},
    {"type": "function_call", "call_id": "c1", "name": "look", "arguments": "{}", "id": "fc_1", "status": "completed"},
    {"type": "function_call_output", "call_id": "c1", "output": "seen", "id": "fco_1"},
    {"type": "reasoning", "id": "rs_1", "summary": [{"type": "summary_text", "text": "thought"}]},
    {"type": "item_reference", "id": "msg_1"},
    {"role": "user", "content": "Go on"},
]
BLOCKS = [
    {"role": "user", "content": [{"type": "text", "text": "Hi", "cache_control": {"type": "ephemeral"}}]},
    {"role": "assistant", "content": [{"type": "tool_use", "id": "c1", "name": "look", "input": {}}]},
    {"role": "user", "content": [{"type": "tool_result", "tool_use_id": "c1", "content": "seen", "is_error": False}]},
]
APIS: dict[str, tuple[type, dict[str, Any], dict[str, Any]]] = {
    "/v1/chat/completions": (
        chat_completions.CompletionCreateParamsBase,
        {"model": "scripted:echo", "messages": [{"role": "user", "content": "Hi"}]},
        {
            "messages": CHAT_MESSAGES,
            "tools": [{"type": "function", "function": FUNCTION}],
            "response_format": {"type": "json_schema", "json_schema": SCHEMA},
            "stream_options": {"include_usage": True},
            "metadata": {"a": "b"},
            "logit_bias": {"5": 1},
        },
    ),
    "/v1/responses": (
        responses.ResponseCreateParamsBase,
        {"model": "scripted:echo", "input": "Hi"},
        {
            "input": ITEMS,
            "tools": [{"type": "function", **FUNCTION}],
            "text": {"format": {"type": "json_schema", **SCHEMA}, "verbosity": "low"},
            "reasoning": {"effort": "low", "summary": "auto"},
            "metadata": {"a": "b"},
        },
    ),
    "/v1/messages": (
        anthropic_messages.MessageCreateParamsBase,
        {"model": "scripted:echo", "max_tokens": 100, "messages": [{"role": "user", "content": "Hi"}]},
        {
            "messages": BLOCKS,
            "tools": [{"name": "look", "description": "Look.", "input_schema": {"type": "object"}}],
            "system": [{"type": "text", "text": "Be kind."}],
            "thinking": {"type": "enabled", "budget_tokens": 1024},
            "tool_choice": {"type": "auto"},
        },
    ),
}
SERVED = [path for path in APIS if ("POST", path) in {(method, path) for method, path, _ in ROUTES}]


def paths(value: Any, before: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """The path to every value inside this one."""
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, one in inner:
        yield (*before, key)
        yield from paths(one, (*before, key))


def changed(body: dict[str, Any], path: tuple[Any, ...], value: Any) -> dict[str, Any]:
    """The body with another value at this path."""
    body = copy.deepcopy(body)
    inner: Any = body
    for key in path[:-1]:
        inner = inner[key]
    inner[path[-1]] = value
    return body


def requests(api: str) -> Iterator[dict[str, Any]]:
    """Requests in which one parameter, or a value inside it, has an unusual value."""
    parameters, least, samples = APIS[api]
    for name in sorted(get_type_hints(parameters) | {"stream": bool, "": None}):
        yield from ({**least, name: value} for value in VALUES)
    for name, sample in samples.items():
        yield {**least, name: sample}
        for path in paths(sample):
            yield from (changed({**least, name: sample}, (name, *path), value) for value in VALUES)
    yield from ({name: value for name, value in least.items() if name != missing} for missing in least)


def check(http: httpx.Client, home: Path, api: str, **always: Any) -> None:
    failed: list[str] = []
    accepted = 0
    with http:
        for body in every_nth(list(requests(api)), 12):
            answer = http.post(api, content=json.dumps(body | always), headers=VERSION)
            accepted += answer.is_success
            if answer.status_code >= 500 or "server_error" in answer.text:
                failed.append(f"{answer.status_code} {answer.text[:200]} for {json.dumps(body)[:300]}")

    assert not failed, "\n".join(failed[:20])
    assert accepted, "some values are right"
    assert "Traceback" not in (home / "logs" / "holdfast.log").read_text()


@pytest.mark.parametrize("api", SERVED)
def test_no_value_of_a_parameter_makes_the_server_fail(server: Server, api: str) -> None:
    check(server.http(), server.home, api)


@pytest.mark.parametrize("api", SERVED)
def test_no_value_of_a_parameter_that_is_passed_on_makes_the_server_fail(upstream: Server, api: str) -> None:
    # A response repeats what the provider has accepted, and the fake one accepts any value. So its type is not checked.
    headers = {"authorization": f"Bearer {KEY}"}
    unchecked = httpx.Client(base_url=upstream.url, headers=headers, timeout=30, verify=False)
    check(unchecked, upstream.home, api, model="openai:gpt-fake")
