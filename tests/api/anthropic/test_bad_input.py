"""Bad input of any kind is an error in Anthropic's format that names what is wrong, never a failure of the server."""

from pathlib import Path
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.api.anthropic.conftest import VERSION, listed, post
from tests.api.anthropic.sdk_types import check_error
from tests.api.serving import Server
from tests.sampling import SOAK

USER = {"role": "user", "content": "hello"}
CALL = {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "weather", "input": {}}]}
RESULT = {"type": "tool_result", "tool_use_id": "a", "content": "Rain."}
TOOL = {"name": "weather", "input_schema": {"type": "object"}}


def blocks(*content: object, role: str = "user") -> dict[str, Any]:
    return {"messages": [{"role": role, "content": list(content)}]}


BAD: list[tuple[str, dict[str, Any]]] = [
    ("messages", {"messages": []}),
    ("messages", {"messages": "hello"}),
    ("messages", {"messages": None}),
    ("nothing to answer", {"messages": [USER, {"role": "assistant", "content": "Hello."}]}),
    ("nothing to answer", {"messages": [{"role": "assistant", "content": "Hello."}]}),
    ("role", {"messages": [{"role": "tool", "content": "x"}]}),
    ("content", {"messages": [{"role": "user", "content": []}]}),
    ("content", {"messages": [{"role": "user", "content": ""}]}),
    ("content", {"messages": [{"role": "user"}]}),
    ("content", {"messages": [{"role": "user", "content": 5}]}),
    ("non-empty", blocks({"type": "text", "text": ""})),
    ("text", blocks({"type": "text"})),
    ("type", blocks({"type": "video"})),
    ("type", blocks({"text": "x"})),
    ("content[0]", blocks("hello")),
    ("source", blocks({"type": "image", "source": {"type": "file", "file_id": "f"}})),
    ("image", blocks({"type": "image", "source": {"type": "base64", "media_type": "image/png", "data": "!"}})),
    ("image", blocks({"type": "image", "source": {"type": "url", "url": "ftp://x"}})),
    ("source", blocks({"type": "document", "source": {"type": "url", "url": "https://x/a.pdf"}})),
    ("file", blocks({"type": "document", "source": {"type": "base64", "media_type": "application/pdf", "data": "AA"}})),
    ("citations", blocks({"type": "document", "citations": {"enabled": True}, "source": {"type": "text", "data": "x"}})),
    ("tool_use block", blocks(*CALL["content"])),
    ("tool_result block", {"messages": [USER, {"role": "assistant", "content": [RESULT]}, USER]}),
    ("no call with that id", blocks(RESULT)),
    ("no call with that id", {"messages": [USER, CALL, {"role": "user", "content": [RESULT | {"tool_use_id": "b"}]}]}),
    ("no call with that id", {"messages": [USER, CALL, {"role": "user", "content": [RESULT, RESULT]}]}),
    ("unique ids", {"messages": [USER, {"role": "assistant", "content": [*CALL["content"], *CALL["content"]]}, USER]}),
    ("input", {"messages": [USER, {"role": "assistant", "content": [{"type": "tool_use", "id": "a", "name": "b", "input": "x"}]}]}),
    ("system", {"system": 5}),
    ("system", {"system": [{"type": "image", "source": {}}]}),
    ("max_tokens", {"max_tokens": 0}),
    ("max_tokens", {"max_tokens": 10**12}),
    ("max_tokens", {"max_tokens": 1.5}),
    ("max_tokens", {"max_tokens": None}),
    ("model", {"model": 5}),
    ("temperature", {"temperature": 3}),
    ("budget_tokens", {"thinking": {"type": "enabled", "budget_tokens": 5}}),
    ("budget_tokens", {"thinking": {"type": "enabled", "budget_tokens": 4096}}),
    ("thinking.type", {"thinking": {"type": "deep"}}),
    ("tools[0]", {"tools": [{"type": "web_search_20250305", "name": "web_search"}]}),
    ("input_schema", {"tools": [{"name": "weather"}]}),
    ("input_schema", {"tools": [{"name": "weather", "input_schema": {"type": "string"}}]}),
    ("name", {"tools": [{"name": "a b", "input_schema": {"type": "object"}}]}),
    ("unique", {"tools": [TOOL, TOOL]}),
    ("tool_choice", {"tool_choice": {"type": "tool", "name": "weather"}}),
    ("tool_choice", {"tool_choice": {"type": "any"}}),
    ("tool_choice", {"tool_choice": "auto"}),
    ("edits", {"context_management": {"edits": [{"type": "clear_tool_uses_20250919"}]}}),
    ("metadata", {"metadata": {"name": "x"}}),
    ("stop_sequences", {"stop_sequences": "x"}),
    ("invented", {"invented": 1}),
]  # fmt: skip


@pytest.mark.parametrize(("named", "body"), BAD, ids=lambda value: str(value)[:60])
def test_bad_input_is_refused_by_name(http: httpx.Client, named: str, body: dict[str, Any]) -> None:
    assert named in check_error(post(http, "hello", **body))


def test_a_refused_request_leaves_no_session(http: httpx.Client) -> None:
    before = listed(http, sides=True)
    for _, body in BAD:
        post(http, "hello", **body)

    assert listed(http, sides=True) == before


@pytest.mark.parametrize("version", ["", "latest", "2023-6-1"])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_the_version_is_required(http: httpx.Client, path: str, version: str) -> None:
    body = {"model": "holdfast", "max_tokens": 5, "messages": [USER]}
    headers = {"anthropic-version": version} if version else {}

    assert "anthropic-version" in check_error(http.post(path, json=body, headers=headers))


@pytest.mark.parametrize("body", [b"", b"[]", b"{", b"\xff", b"nul", b"[" * 100_000])
@pytest.mark.parametrize("path", ["/v1/messages", "/v1/messages/count_tokens"])
def test_a_body_that_is_no_object_is_refused(http: httpx.Client, path: str, body: bytes) -> None:
    check_error(http.post(path, content=body, headers=VERSION))


def test_other_statuses_have_their_types(http: httpx.Client, tmp_path: Path) -> None:
    check_error(http.get("/v1/messages"), 405)
    check_error(http.post("/v1/messages/batches", json={}), 404, "not_found_error")
    check_error(post(http, "hello", model="nobody"), 404, "not_found_error")
    check_error(post(http, "hello", headers={"x-session-id": "hf-0000000000000000"}), 404, "not_found_error")
    check_error(http.post("/v1/messages", content=b"x" * (33 * 2**20)), 413, "request_too_large")
    check_error(post(http, "hello", headers={"host": "example.org"}), 403, "permission_error")


def test_a_key_with_another_body_is_refused(http: httpx.Client) -> None:
    key = {"idempotency-key": "once"}
    first = post(http, "hello", headers=key)

    assert post(http, "hello", headers=key).json() == first.json()
    refused = post(http, "other", headers=key)
    check_error(refused, 422)
    assert refused.headers["x-error-code"] == "key_reused"


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=8,
)
TYPES = ["text", "image", "document", "tool_use", "tool_result", "thinking", "redacted_thinking", "tool_reference"]
FIELDS = ["text", "source", "id", "name", "input", "tool_use_id", "content", "is_error", "thinking", "data", "title"]
BLOCK = st.builds(
    lambda kind, fields: {"type": kind, **fields},
    st.sampled_from(TYPES),
    st.dictionaries(st.sampled_from(FIELDS), JSON),
)
MESSAGE = st.fixed_dictionaries(
    {"role": st.sampled_from(["user", "assistant", "system"]), "content": st.lists(BLOCK | JSON, max_size=3) | JSON}
)
NAMES = [
    "system",
    "tools",
    "tool_choice",
    "thinking",
    "output_config",
    "metadata",
    "stop_sequences",
    "temperature",
    "top_p",
]


@settings(max_examples=200 if SOAK else 40, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(st.lists(MESSAGE, max_size=4), st.dictionaries(st.sampled_from(NAMES), JSON, max_size=2))
def test_no_request_is_an_internal_error(server: Server, messages: list[Any], more: dict[str, Any]) -> None:
    with server.http() as http:
        response = post(http, *messages, **more)

    if response.status_code != 200:
        check_error(response)
